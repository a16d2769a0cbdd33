"""Questions of the task WSD from the annotated sentences they were drawn from: the 862 of ReBA's authors, as they are.

    python recipes/wsd_questions.py wsd.jsonl.gz wsd_questions.jsonl.gz

The first file is wsd_single_sense_sentence_final.json of SUDA-LA/Modern-Chinese-Word-Sense-Annotated-dataset (Yan,
Zhang and Li 2023), {word: {sense: [sentence]}}, or the same in rows of {"word", "senses"}. A question has the first
three sentences of the word's most frequent sense and the first one of its rarest (cqdyf099/ReBA, "1 准备工作.ipynb").

Two things that look like chance are fixed, so that the authors' file comes out. They shuffle with seed 0. And where
senses are equally frequent they take what `numpy.argsort` puts first or last, whose order of equal numbers depends on
the processor: theirs had AVX-512 or AVX2, whose sorting network stands here in plain Python. A stable sort would
choose another sense in 30 questions.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from afterword.errors import AfterwordError, DataError, MissingDataset
from afterword.tasks.task import read_rows, text

Senses = Mapping[str, Sequence[str]]


def questions(words: Iterable[tuple[str, Senses]], seed: int = 0) -> Iterator[dict[str, Any]]:
    """One question per word that has two senses with sentences, one of them with three.

    Args:
        words: each with its senses, each with its sentences; senses without any are passed over.
        seed: of the options' order.

    Yields:
        {"word", "options", "answer"}, the answer an index from 0.
    """
    chance = random.Random(seed)
    for word, senses in words:
        sentences = [s for s in senses.values() if s]
        counts = [len(s) for s in sentences]
        if len(counts) < 2 or max(counts) < 3:
            continue
        ranked = argsort(counts)
        drawn = [*sentences[ranked[-1]][:3], sentences[ranked[0]][0]]
        order = [0, 1, 2, 3]
        chance.shuffle(order)
        yield {"word": word, "options": [drawn[i] for i in order], "answer": order.index(3)}


def argsort(numbers: Sequence[int]) -> list[int]:
    """Indices that sort numbers, equal ones as the bitonic network of x86-simd-sort leaves them, which numpy uses.

    >>> argsort([5, 6, 1, 1])
    [3, 2, 0, 1]
    """
    size = 1 << max(0, len(numbers) - 1).bit_length()
    keys = [*numbers, *[max(numbers, default=0) + 1] * (size - len(numbers))]
    order = list(range(size))
    block = 2
    while block <= size:
        # mirror each block, then compare at half the distance, and half of that: equal keys stay where they are
        for step in (block - 1, *(block >> i for i in range(2, block.bit_length()))):
            for i in range(size):
                j = i ^ step
                if i < j and keys[order[i]] > keys[order[j]]:
                    order[i], order[j] = order[j], order[i]
        block *= 2
    return order[: len(numbers)]


def read(path: Path) -> Iterator[tuple[str, Senses]]:
    """The words of a file and their senses.

    Raises:
        DataError: it does not exist, or has another form.
    """
    if path.suffix != ".json":
        for row in read_rows(path, {"word": text, "senses": _senses}):
            yield row["word"], row["senses"]
        return
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise MissingDataset(f"{path} does not exist") from None
    except ValueError as e:
        raise DataError(f"{path} cannot be read: {e}") from None
    if not isinstance(found, dict):
        raise DataError(f"{path} is no object of words")
    for word, senses in found.items():
        try:
            yield word, _senses(senses)
        except ValueError as e:
            raise DataError(f"{path}: {word!r:.40} {e}") from None


def _senses(value: Any) -> Senses:
    lists = isinstance(value, dict) and all(isinstance(v, list) for v in value.values())
    if not lists or not all(isinstance(s, str) for v in value.values() for s in v):
        raise ValueError(f"is {value!r:.40}, not an object of lists of sentences")
    return dict(value)


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows as JSON Lines, gzipped where the name ends in .gz; twice the same bytes. Returns their number."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    content = "".join(lines).encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return len(lines)


def main() -> int:
    """Run the command; a mistake of the user is one line and exit code 2."""
    parser = argparse.ArgumentParser(description="Questions of the task WSD from its annotated sentences.")
    parser.add_argument("senses", type=Path, help=".json, .jsonl or .jsonl.gz")
    parser.add_argument("questions", type=Path, help=".jsonl or .jsonl.gz")
    args = parser.parse_args()
    try:
        print(f"{write(args.questions, questions(read(args.senses)))} questions in {args.questions}")
    except (AfterwordError, OSError) as error:
        print(f"wsd_questions: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
