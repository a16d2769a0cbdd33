"""The seven sets, and what MiniLM has on them."""

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from afterword import Encoder
from afterword.tasks.rows import Folder
from afterword.tasks.sts import SETS, TASKS, sts


def test_every_set_has_its_file():
    assert [task.name for task in TASKS if task.group == "sts"] == list(SETS)
    assert sts("STS12").files() == ("en/sts/sts12.test",)
    assert sts("STS12", text="raw").files() == ("en/sts_raw/sts12.test",)
    assert (sts("SICKR", split="dev").name, sts("SICKR", split="dev").group) == ("SICKR.dev", "sts-dev")
    assert len({task.name for task in TASKS}) == len(TASKS) == 23


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_data_are_all_there(data: Path, task):
    pairs = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186, "STSB": 1379, "SICKR": 4927,
             "STSB.dev": 1500, "SICKR.dev": 500, "ATEC": 5000, "BQ": 5000, "LCQMC": 5000, "PAWSX": 2000,
             "STSB-zh": 1361, "AFQMC": 4316, "QBQTC": 5000}  # fmt: skip
    loaded = task.load(Folder(data))
    assert len(loaded.gold) == pairs[task.name.replace(".raw", "")]
    assert len(loaded.notes) == (task.name in ("ATEC", "BQ", "LCQMC")), "samples say so"
    assert 0 <= loaded.gold.min() < loaded.gold.max() <= 5


class Bags:
    """How often each of a text's words occurs, the words in 256 bins."""

    def encode(self, texts: Sequence[str], /, *, conditions: Sequence[str] | None = None) -> np.ndarray:
        vectors = np.zeros((len(texts), 256), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in text.lower().split():
                vector[crc32(word.encode()) % 256] += 1
        return vectors


def test_bags_of_words_have_the_scores_that_plain_loops_give_them(data: Path):
    """All rows of all sets count: SciPy's Spearman over cosines in float64, pair by pair, once for every set."""
    expected = {"STS12": 35.141, "STS13": 47.037, "STS14": 46.663, "STS15": 62.014, "STS16": 52.704, "STSB": 46.091,
                "SICKR": 52.845}  # fmt: skip
    scores = {name: 100 * sts(name).run(Bags(), Folder(data)).main for name in SETS}
    assert scores == pytest.approx(expected, abs=0.02)  # in float32 cosines that are equal may not tie


@pytest.mark.soak
def test_minilm_has_its_published_scores(minilm: Path, data: Path):
    """On all seven sets; `make test` has STS16, through the command line."""
    expected = {"STS12": 72.37, "STS13": 80.60, "STS14": 75.59, "STS15": 85.39, "STS16": 78.99, "STSB": 82.03,
                "SICKR": 77.15}  # fmt: skip
    encoder = Encoder.load(minilm)
    scores = {name: 100 * sts(name).run(encoder, Folder(data)).main for name in expected}
    assert scores == pytest.approx(expected, abs=0.02)
