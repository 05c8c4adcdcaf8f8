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


if __name__ == "__main__":
    main()
