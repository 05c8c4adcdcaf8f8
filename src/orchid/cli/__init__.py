"""The ``orchid`` command line: a module for each kind of command, which registers its own when it is imported."""

from orchid.cli import bench, runs, sweeps, text
from orchid.cli.app import app

__all__ = ["app", "bench", "runs", "sweeps", "text"]
