"""Word frequencies, from a corpus or a list of counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import BadRow, DataError, MissingDataset

COUNTED = re.compile(r"(\S+)[ \t]+(\d+)")
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def read_counts(path: str | Path) -> Counter[str]:
    """Read how often each word occurs; words are in lower case.

    Args:
        path: a text file in UTF-8. If its first line is a word and a number, it is a list of counts, and every line
            must have this form; otherwise it is a corpus, whose words are counted.

    Raises:
        MissingDataset: there is no such file.
        BadRow: a line of a list of counts is not a word and a number.
        DataError: the file cannot be read, or has no word.
    """
    path = Path(path)
    counts: Counter[str] = Counter()
    listed: bool | None = None
    for number, line in _lines(path):
        match = COUNTED.fullmatch(line.strip())
        listed = match is not None if listed is None else listed
        if not listed:
            counts.update(word.casefold() for word in WORD.findall(line))
        elif match is not None:
            counts[match[1].casefold()] += int(match[2])
        else:
            raise BadRow(path, number, f"{line.strip()!r:.40} is no word and its count, as the first line is")
    if not counts:
        raise DataError(f"{path} holds no word: give a text, or lines of a word and its count")
    return counts


def most_frequent(counts: Mapping[str, int], top: int) -> frozenset[str]:
    """The most frequent words; of words with equal counts the first.

    >>> sorted(most_frequent({"it": 9, "rain": 1, "is": 8}, 2))
    ['is', 'it']
    """
    return frozenset(sorted(counts, key=lambda word: -counts[word])[:top])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers from 1."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except FileNotFoundError:
        raise MissingDataset(f"{path} does not exist: give a corpus or a list of word counts") from None
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"{path} cannot be read as UTF-8 text: {e}") from None
