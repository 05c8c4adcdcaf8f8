"""Pure functions on (B, D, L): no parameters, no axis moves. Start with ``reference.py``."""
