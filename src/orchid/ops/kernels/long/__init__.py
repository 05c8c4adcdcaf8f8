"""Rows of 8,192 to 1,048,576: three passes over memory."""
