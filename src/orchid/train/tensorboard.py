"""Metrics for TensorBoard, beside metrics.jsonl."""

from pathlib import Path


class TensorBoard:
    """Writes every number of a log entry as a scalar under ``folder``.

    Args:
        folder: where the event files go.
        step: the step the run starts from: what an earlier, interrupted process wrote after it is hidden.
    """

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError("--tensorboard needs TensorBoard: pip install 'orchid-torch[train]'") from None
        self.writer = SummaryWriter(str(folder), purge_step=step + 1)

    def log(self, entry: dict[str, float]) -> None:
        """Write the metrics of an entry of metrics.jsonl at its step."""
        for name, value in entry.items():
            if "/" in name:
                self.writer.add_scalar(name, value, int(entry["step"]), walltime=None)

    def close(self) -> None:
        """Flush and close the event file."""
        self.writer.close()
