"""The smallest task there can be."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from afterword import Encoder
from afterword.tasks.rows import Folder, Source
from afterword.tasks.task import Embedder, Loaded, Scores, Task, embed


class Norms(Loaded):
    def score(self, embedder: Embedder, seed: int) -> Scores:
        found = np.linalg.norm(embedder.encode(["a", "b"]), axis=1)
        return Scores(float(found.mean()), {"norm": float(found.mean()), "seed": seed})


class Norm(Task):
    group, metric = "toy", "norm"

    def files(self) -> Sequence[str]:
        return ()

    def load(self, source: Source) -> Loaded:
        return Norms()


def test_an_encoder_is_what_a_task_asks_for(tmp_path: Path):
    encoder = Encoder.load("afterword-mini", "classical")
    scores = Norm("Norm").run(encoder, Folder(tmp_path), seed=3)
    assert scores.main == float(np.linalg.norm(encoder.encode(["a", "b"]), axis=1).mean()) > 0
    assert scores.metrics["seed"] == 3 and Norm("Norm").load(Folder(tmp_path)).texts() == ()


def test_each_text_is_embedded_once_and_an_empty_one_is_a_full_stop():
    class Lengths:
        def encode(self, texts: Sequence[str], /, *, conditions: Sequence[str] | None = None) -> np.ndarray:
            self.seen = texts
            return np.array([[len(t), ord(t[0])] for t in texts], np.float32)

    lengths = Lengths()
    assert embed(lengths, ["bb", "", "a", "bb", "  "]).tolist() == [[2, 98], [1, 46], [1, 97], [2, 98], [1, 46]]
    assert lengths.seen == ["bb", ".", "a"]
