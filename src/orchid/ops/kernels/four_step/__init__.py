"""Rows of 256 to 4,096: two products a transform, one kernel."""
