"""Normalisation over channels."""
