"""What is written in a figure."""

from pathlib import Path
from xml.etree import ElementTree


def drawn(path: Path) -> list[str]:
    """The texts of an .svg figure."""
    return [t.text or "" for t in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
