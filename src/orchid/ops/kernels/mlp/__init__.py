"""The block-diagonal MLP."""
