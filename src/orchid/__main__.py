"""The ``orchid`` command; ``python -m orchid`` is the same."""

import os
import sys
import traceback

# Which extra brings a package; all else that the command needs is in one.
EXTRAS = {
    "datasets": "data",
    "onnxscript": "export",
    "PIL": "vision",
    "sklearn": "bert",
    "timm": "vision",
    "tokenizers": "bert",
    "torchvision": "vision",
    "transformers": "bert",
    "triton": "kernels",
}


def main() -> None:
    """Run the command line; as one process of several, exit without shutting down the interpreter."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        run()
    else:
        leave(_status())


def run() -> None:
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
        sys.stderr.write(f"error: this needs {missing}: pip install 'orchid-torch[{EXTRAS.get(missing, 'train')}]'\n")
        sys.exit(2)


def _status() -> int:
    """Run the command line and return its exit code."""
    try:
        run()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def leave(status: int) -> None:
    """Take leave of the other processes of a ``torchrun`` and exit.

    Threads of the library that still talk to them abort an interpreter that ends, now and then, when all is done.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
