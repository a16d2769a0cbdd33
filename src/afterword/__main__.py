"""Run the command ``afterword`` as ``python -m afterword``."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C during its import also prints one line instead of a traceback."""
    try:
        from .cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
