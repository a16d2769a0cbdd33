"""Data sets from the Hugging Face hub, with their names and fields mapped to those that the tasks use."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import DataError, MissingDataset, MissingExtra
from .rows import Check, Folder, Row, Source, checked


@dataclass(frozen=True)
class Part:
    """One split of one repository.

    Args:
        repository: owner and name, as in "mteb/sts12-sts".
        split: name of the split there.
        fields: our field names to the repository's.
        rows: the expected number of rows; None = unknown.
        fixed: our fields that the repository lacks, with one value for all rows.
        configuration: name of the configuration there.
        revision: a commit; None = the newest.
    """

    repository: str
    split: str
    fields: Mapping[str, str]
    rows: int | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)
    configuration: str | None = None
    revision: str | None = None


SCORED = {n: n for n in ("sentence1", "sentence2", "score")}
PAIR = {n: n for n in ("sentence1", "sentence2", "label")}
TEXT = {"text": "text", "label": "label"}
SENTENCE = {"text": "sentence", "label": "label"}
ALL, TRAIN, DEV, TEST = ({"split": s} for s in ("all", "train", "dev", "test"))
GLUE = "nyu-mll/glue"
MR, STSB = "cornell-movie-review-data/rotten_tomatoes", "b0fddb56ed78048fa8b90373c8a3cfc37b684831"


def _sts(name: str, split: str, rows: int, revision: str) -> tuple[Part, ...]:
    return (Part(f"mteb/{name}-sts", split, SCORED, rows, revision=revision),)


PARTS: Mapping[str, tuple[Part, ...]] = {
    "en/sts_raw/sts12.test": _sts("sts12", "test", 3108, "a0d554a64d88156834ff5ae9920b964011b16384"),
    "en/sts_raw/sts13.test": _sts("sts13", "test", 1500, "7e90230a92c190f1bf69ae9002b8cea547a64cca"),
    "en/sts_raw/sts14.test": _sts("sts14", "test", 3750, "6031580fec1f6af667f0bd2da0a551cf4f0b2375"),
    "en/sts_raw/sts15.test": _sts("sts15", "test", 3000, "ae752c7c21bf194d8b67fd573edf7ae58183cbe3"),
    "en/sts_raw/sts16.test": _sts("sts16", "test", 1186, "4d8694f8f0e0100860b497b999b3dbed754a0513"),
    "en/sts_raw/stsb.train": _sts("stsbenchmark", "train", 5749, STSB),
    "en/sts_raw/stsb.dev": _sts("stsbenchmark", "validation", 1500, STSB),
    "en/sts_raw/stsb.test": _sts("stsbenchmark", "test", 1379, STSB),
    "en/transfer/mr": (
        Part(MR, "train", TEXT, 8530, ALL),
        Part(MR, "validation", TEXT, 1066, ALL),
        Part(MR, "test", TEXT, 1066, ALL),
    ),
    "en/transfer/cr": (
        Part("SetFit/SentEval-CR", "train", TEXT, None, ALL),
        Part("SetFit/SentEval-CR", "test", TEXT, None, ALL),
    ),
    "en/transfer/subj": (Part("SetFit/subj", "train", TEXT, 8000, ALL), Part("SetFit/subj", "test", TEXT, 2000, ALL)),
    "en/transfer/mpqa": (Part("jxm/mpqa", "train", SENTENCE, 8603, ALL), Part("jxm/mpqa", "test", SENTENCE, 2000, ALL)),
    "en/transfer/sst2": (
        Part(GLUE, "train", SENTENCE, 67349, TRAIN, "sst2"),
        Part(GLUE, "validation", SENTENCE, 872, DEV, "sst2"),
        Part("jxm/sst2", "test", SENTENCE, 1821, TEST),
    ),
    "en/transfer/trec": (
        Part("jxm/trec", "train", SENTENCE, 5452, TRAIN),
        Part("jxm/trec", "test", SENTENCE, 500, TEST),
    ),
    "en/transfer/mrpc": (
        Part(GLUE, "train", PAIR, 3668, TRAIN, "mrpc"),
        Part(GLUE, "validation", PAIR, 408, TRAIN, "mrpc"),
        Part(GLUE, "test", PAIR, 1725, TEST, "mrpc"),
    ),
}
"""The splits that make up each data set.

The hub has STS in the organisers' own text only, without the names of subsets. It has no usable SICK-R: MTEB's set
holds the pairs of all three splits as one (9,927), another keeps 4,906 of the 4,927 test pairs. The transfer sets have
the rows of SentEval's, but not its Moses tokenisation and wrongly decoded letters; CR and MPQA lack the empty texts."""


@dataclass(frozen=True)
class Hub(Source):
    """The hub, or a mirror of it.

    Args:
        mirror: a folder with copies of repositories under their names, as "mteb/sts12-sts"; None = the hub itself.
        parts: the splits that make up each data set.
    """

    mirror: Path | None = None
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=lambda: PARTS, hash=False)

    def rows(self, name: str, fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> list[Row]:
        """All rows of a data set, checked as in `Source.rows`.

        Raises:
            MissingExtra: the datasets package is not installed.
        """
        return [checked(place, n, raw, fields, optional or {}) for place, n, raw in self._records(name)]

    def digest(self, name: str) -> str:
        """The SHA-256 of the rows in order, over the fields in use."""
        whole = sha256()
        for _, _, raw in self._records(name):
            whole.update(json.dumps(raw, sort_keys=True).encode())
        return whole.hexdigest()

    def _records(self, name: str) -> Iterator[tuple[str, int, Row]]:
        """For each row: repository and split, row number from 1, and fields under our names."""
        if name not in self.parts:
            raw = name.replace("en/sts/", "en/sts_raw/")
            fix = f"{raw} is, ask for sts-raw" if raw in self.parts else "a folder may have it"
            raise MissingDataset(f"the hub is not known to have {name}: {fix}")
        for part in self.parts[name]:
            dataset = self._load(part)
            if part.rows is not None and len(dataset) != part.rows:
                raise DataError(f"{part.repository} has {len(dataset)} rows in {part.split}, not {part.rows}")
            missing = sorted(set(part.fields.values()) - set(dataset.column_names))
            if missing:
                raise DataError(f"{part.repository} has no field {missing[0]}, only {', '.join(dataset.column_names)}")
            columns = {ours: dataset[theirs] for ours, theirs in part.fields.items()}
            for i, values in enumerate(zip(*columns.values(), strict=True)):
                yield (
                    f"{part.repository}/{part.split}",
                    i + 1,
                    {**dict(zip(columns, values, strict=True)), **part.fixed},
                )

    def _load(self, part: Part) -> Any:
        try:
            from datasets import load_dataset
            from datasets.exceptions import DatasetsError
        except ImportError:
            raise MissingExtra("datasets", "evaluate") from None
        path = part.repository if self.mirror is None else str(self.mirror / part.repository)
        revision = part.revision if self.mirror is None else None
        try:
            with nullcontext() if self.mirror else only_cached_if_silent():
                return load_dataset(path, part.configuration, split=part.split, revision=revision)
        except (OSError, ValueError, DatasetsError) as e:
            reason = str(e).splitlines()[0] if str(e) else type(e).__name__
            raise MissingDataset(f"{path} cannot be loaded: {reason}") from None


@cache
def hub_answers() -> bool:
    """Whether the hub answers, asked once: without a network each data set would be tried for half a minute."""
    import huggingface_hub

    try:
        huggingface_hub.get_session().head(huggingface_hub.constants.ENDPOINT, timeout=10)
    except Exception:  # of the network, of its settings, or offline mode: all mean that the hub cannot be asked
        return False
    return True


@contextmanager
def only_cached_if_silent() -> Iterator[None]:
    """A context in which, if the hub does not answer, its libraries use what they have on disk and do not try again."""
    import datasets
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    try:
        if not hub_answers():
            constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def source(where: str | Path) -> Source:
    """The source of data sets that a string names.

    Args:
        where: "hub", or a folder.

    Raises:
        MissingDataset: there is no such folder.

    >>> source("hub") == Hub()
    True
    """
    if where == "hub":
        return Hub()
    if not Path(where).is_dir():
        raise MissingDataset(f'{where} is not a folder: give one that holds the data sets, or "hub"')
    return Folder(Path(where))
