"""The ``orchid`` command; ``python -m orchid`` is the same."""

import sys


def main() -> None:
    """Run the command line, or say which extra brings what it needs."""
    try:
        from orchid.cli import app

        app()
    except KeyboardInterrupt:  # before or after what handles it
        sys.exit(130)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "orchid":
            raise
        sys.exit(f"error: the orchid command needs {missing}: pip install 'orchid-torch[train]'")
    finally:
        _leave_process_group()


def _leave_process_group() -> None:
    """Take leave of the other processes of a ``torchrun``: threads still talking to them may abort one that exits."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
