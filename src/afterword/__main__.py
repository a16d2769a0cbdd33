"""``python -m afterword`` is the command ``afterword``."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C while it is still being imported ends it in one line too."""
    try:
        from .cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
