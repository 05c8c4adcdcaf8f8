"""One training engine for every task: progress, metrics, evaluation, atomic checkpoints, exact resume."""
