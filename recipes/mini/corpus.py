"""The texts of afterword-mini: read, leave out what is not free, screen, cut, hold out.

    files -> documents -> OverlapFilter -> pieces -> train and held out

`pretrain_mini.py` is the command; this file has no command line of its own.
"""

from __future__ import annotations

import gzip
import itertools
import json
import lzma
import os
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import Pool
from pathlib import Path

HELD_OUT_EVERY = 100  # one document in a hundred is never trained on

# Each stream of training tokens, the files it reads and its share of the tokens seen. The 31 % of
# Chinese is what one pass over all of zhwiki gives in a budget of about 35 M tokens; the novels
# are weighted up because people do things in them, which an encyclopaedia seldom tells.
SOURCES: dict[str, tuple[str, ...]] = {
    "enwiki": ("enwiki.txt.xz", "enwiki_more.txt.xz"),
    "novels": ("novels.txt.xz",),
    "zhwiki": ("zhwiki.txt.xz",),
}
SHARES = {"enwiki": 0.51, "novels": 0.18, "zhwiki": 0.31}
LANGUAGE = {"enwiki": "en", "novels": "en", "zhwiki": "zh"}
# A piece is the text between a BOS and an EOS. Cutting documents at paragraph ends after so many
# characters lets the model see about one BOS per block of 512 tokens: the texts that it will
# embed are short and start with one.
PIECE_CHARACTERS = {"en": 1500, "zh": 500}

# Two of the hundred novels came out after 1929 and are not free everywhere: Galsworthy's "Over
# the River" (1933) and Woolf's "The Years" (1937). The file has no titles, so they are known by
# their first words.
NOVELS_AFTER_1929 = (
    "Clare, who for seventeen months had been the wife of Sir Gerald Corven",
    "He had somewhere to go, after all. While they were gossiping he had kept",
)


class RecipeError(Exception):
    """A mistake or a shortage that the user can mend: one line on stderr, exit code 2."""


def read_documents(path: Path) -> Iterator[str]:
    """Yield the documents of a corpus file: paragraphs on lines, blank lines between documents."""
    lines: list[str] = []
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            if line.strip():
                lines.append(line.strip())
            elif lines:
                yield "\n".join(lines)
                lines = []
    if lines:
        yield "\n".join(lines)


def is_free(document: str) -> bool:
    """Tell whether a document may be trained on (see NOVELS_AFTER_1929)."""
    return not document.startswith(NOVELS_AFTER_1929)


def source_paths(corpus: Path) -> dict[str, list[Path]]:
    """Find every corpus file, or say in one line which is missing."""
    paths = {name: [corpus / file for file in files] for name, files in SOURCES.items()}
    missing = [path for group in paths.values() for path in group if not path.is_file()]
    if missing:
        raise RecipeError(f"no corpus: {missing[0]} is missing; give the folder that has it with --corpus DIR")
    return paths


# ---- the overlap filter ------------------------------------------------------------------------

EVALUATION = ("en", "zh", "nli")  # the folders beside the corpus that are measured on
_NOT_LETTERS = re.compile(r"[\W_]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])|\n")
_HAN = re.compile(r"[\u3400-\u9fff]")
_WINDOW = 3  # "U.S. Army" is cut in two by the simple splitter: also look at 2 and 3 cuts joined


def normalise(text: str) -> str:
    """Casefold and keep only letters and digits, so that tokenisation marks do not matter.

    >>> normalise("A man is n't dancing .")
    'amanisntdancing'
    """
    return _NOT_LETTERS.sub("", text.casefold())


def is_long_enough(text: str) -> bool:
    """Tell whether equality means copying: at least 6 Han characters or 4 parts between spaces.

    Shorter ones ("Yes.", "at the time") are in any text and say nothing about having seen a set.
    In tokenised sets a mark is a part as well, so there "It is raining ." is long enough.
    """
    return len(_HAN.findall(text)) >= 6 or len(text.split()) >= 4


def strings_of(row: object) -> Iterator[str]:
    """Yield every string of a JSON row; word senses are keys, so keys count as well."""
    if isinstance(row, str):
        yield row
    elif isinstance(row, list):
        for item in row:
            yield from strings_of(item)
    elif isinstance(row, dict):
        for key, value in row.items():
            yield key
            yield from strings_of(value)


def evaluation_texts(folder: Path) -> dict[str, str]:
    """Read every evaluation set below a folder: normalised text -> name of the first set with it.

    Args:
        folder: the folder beside the corpus that has en/, zh/ and nli/; absent: nothing to filter.
    """
    found: dict[str, str] = {}
    for path in sorted(p for room in EVALUATION for p in folder.glob(f"{room}/**/*.jsonl.gz")):
        name = str(path.relative_to(folder)).removesuffix(".jsonl.gz")
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for text in itertools.chain.from_iterable(strings_of(json.loads(row)) for row in file):
                for part in {text, *_SENTENCE_END.split(text)}:
                    if is_long_enough(part):
                        found.setdefault(normalise(part), name)
    return found


@dataclass
class OverlapFilter:
    """Drops the sentences that equal an evaluation text, and counts them per set."""

    known: dict[str, str]
    hits: Counter[str] = field(default_factory=Counter)

    def __call__(self, document: str) -> str:
        """Return the document without the sentences (or paragraphs) that are in a set."""
        kept = (self._filter_paragraph(line) for line in document.split("\n"))
        return "\n".join(line for line in kept if line)

    def _filter_paragraph(self, paragraph: str) -> str:
        whole = self.known.get(normalise(paragraph))
        if whole:
            self.hits[whole] += 1
            return ""
        ends = [match.end() for match in _SENTENCE_END.finditer(paragraph)]
        parts = [paragraph[a:b] for a, b in itertools.pairwise((0, *ends, len(paragraph)))]
        drop = self._sentences_to_drop(parts)
        return "".join(part for i, part in enumerate(parts) if i not in drop).strip()

    def _sentences_to_drop(self, parts: list[str]) -> set[int]:
        keys, drop, start = [normalise(part) for part in parts], set[int](), 0
        while start < len(keys):
            ends = range(min(start + _WINDOW, len(keys)), start, -1)  # the longest text first
            end = next((end for end in ends if "".join(keys[start:end]) in self.known), None)
            if end is not None:
                self.hits[self.known["".join(keys[start:end])]] += 1
                drop.update(range(start, end))
            start = end or start + 1
        return drop


# ---- pieces and splits -------------------------------------------------------------------------


def pieces_of(document: str, limit: int) -> Iterator[str]:
    """Cut a document at paragraph ends into texts of about `limit` characters."""
    lines: list[str] = []
    size = 0
    for line in document.split("\n"):
        lines.append(line)
        size += len(line)
        if size >= limit:
            yield "\n".join(lines)
            lines, size = [], 0
    if lines:
        yield "\n".join(lines)


@dataclass(frozen=True)
class Pieces:
    """The filtered texts of one source."""

    train: list[str]
    held_out: list[str]
    hits: Counter[str]


def read_pieces(name: str, documents: Iterable[str], known: dict[str, str]) -> Pieces:
    """Filter the documents of one source, split off the held-out ones, and cut both to pieces."""
    screen = OverlapFilter(known)
    limit = PIECE_CHARACTERS[LANGUAGE[name]]
    train: list[str] = []
    held_out: list[str] = []
    for number, document in enumerate(doc for doc in documents if is_free(doc)):
        target = held_out if number % HELD_OUT_EVERY == HELD_OUT_EVERY // 2 else train
        target.extend(piece for piece in pieces_of(screen(document), limit) if piece)
    return Pieces(train, held_out, screen.hits)


def read_corpus(corpus: Path, limit: int | None = None) -> dict[str, Pieces]:
    """Read every source of the corpus folder, screened.

    Args:
        corpus: the folder of the .txt.xz files; the evaluation sets are looked for beside it.
        limit: read only the beginnings of so many documents of each file (for `--tiny`).
    """
    paths = source_paths(corpus)
    known = evaluation_texts(corpus.parent)
    jobs = [(name, path, known, limit) for name, group in paths.items() for path in group]
    with Pool(min(2, os.cpu_count() or 1)) as pool:
        results = pool.starmap(_read_file, jobs, chunksize=1)
    merged: dict[str, Pieces] = {}
    for (name, *_), part in zip(jobs, results, strict=True):
        old = merged.get(name, Pieces([], [], Counter()))
        merged[name] = Pieces(old.train + part.train, old.held_out + part.held_out, old.hits + part.hits)
    return merged


def _read_file(name: str, path: Path, known: dict[str, str], limit: int | None) -> Pieces:
    documents = read_documents(path)
    if limit is not None:
        documents = (document[:20_000] for document in itertools.islice(documents, limit))
    return read_pieces(name, documents, known)


# ---- text for a tiny run without a corpus ------------------------------------------------------

_WHO = ("我", "他", "她", "老师", "孩子", "朋友", "医生", "我们")
_WHEN = ("今天", "昨天", "早上", "晚上", "夏天", "周末")
_WHERE = ("在学校", "在家里", "在公园", "在图书馆", "在河边", "在车站")
_WHAT = ("看书", "唱歌", "画画", "喝茶", "等火车", "写信", "学习中文", "讲故事")


def own_text() -> dict[str, Pieces]:
    """Make small sources from the project's own files and from a Chinese sentence pattern."""
    root = Path(__file__).resolve().parents[1]
    files = sorted(path for kind in ("*.md", "*.py") for path in root.glob(f"*/**/{kind}"))
    lines = [" ".join(path.read_text(encoding="utf-8").split()) for path in files[:200]]
    english = [line[i : i + 2000] for line in lines for i in range(0, len(line), 2000)]
    rng = random.Random(1)
    chinese = [
        "".join(f"{rng.choice(_WHEN)}{rng.choice(_WHO)}{rng.choice(_WHERE)}{rng.choice(_WHAT)}。" for _ in range(40))
        for _ in range(120)
    ]
    # at least one document must be held out, however small the project is
    english = (english * (-(-2 * HELD_OUT_EVERY // len(english))))[:600]
    texts = {"enwiki": english, "novels": english[::2], "zhwiki": chinese}
    return {name: read_pieces(name, documents, {}) for name, documents in texts.items()}
