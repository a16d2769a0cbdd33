"""Which methods share a forward, and texts by windows."""

import numpy as np
import pytest
from tests.tiny import tiny

from afterword import Encoder, bellm, classical, echo, prompt, reba
from afterword import run as room
from afterword.loading import load_backbone
from afterword.run import shares


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory):
    return load_backbone(tiny("gpt2", tmp_path_factory.mktemp("run")))


def grouped(methods, own) -> list[list[int]]:
    return sorted(sorted(s.methods) for s in shares(methods, own))


def test_copies_share_on_a_causal_model(own) -> None:
    methods = [classical(), echo(2), reba(3), prompt("eol"), bellm(), reba(2, chunk=4)]
    assert own.tokenizer.suffix == []
    assert grouped(methods, own) == [[0, 1, 2], [3], [4], [5]]
    assert next(s for s in shares(methods, own) if 0 in s.methods).layout.copies == 3


def test_special_tokens_keep_apart(own) -> None:
    assert grouped([classical(), classical(add_special_tokens=False)], own) == [[0], [1]]


def test_equal_layouts_share_on_any_model(tmp_path) -> None:
    bert = load_backbone(tiny("bert", tmp_path))
    assert grouped([classical(), classical("cls"), reba(2), reba(2, "mean"), prompt("eol")], bert) == [
        [0, 1],
        [2, 3],
        [4],
    ]


def test_windows_change_nothing(own, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, texts = Encoder(own, reba()), [f"text {i} {'x' * (i % 7)}" for i in range(20)]
    whole = encoder.encode(texts)
    monkeypatch.setattr(room, "WINDOW", 6)
    assert (encoder.encode(texts) == whole).all()
    assert np.isnan(encoder.encode([*texts, ""], on_empty="nan")[-1]).all()


def test_the_bar_counts_texts(own, capsys: pytest.CaptureFixture[str]) -> None:
    Encoder(own, reba()).encode(["a", "b", "c"], show_progress_bar=True)
    seen = capsys.readouterr()
    assert "3/3" in seen.err and not seen.out
