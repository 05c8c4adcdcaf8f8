"""Models that take any mixer by name. Read ``sequence.py`` third."""
