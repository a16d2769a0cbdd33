"""``python -m afterword`` is the command ``afterword``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
