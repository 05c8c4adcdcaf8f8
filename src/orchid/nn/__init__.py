"""Modules. Read ``mixer.py`` for the layer; the other files are its parts."""
