"""One forward read for several families gives the weights and the vectors of each method."""

import pytest
import torch
from tests.tune.made_up import load

from afterword import Encoder
from afterword.methods.states import States
from afterword.text.batch import lay
from afterword.text.layout import Layout
from afterword.tune import reading
from afterword.tune.recipes import Grid, families

TEXTS = ["a cat", "the dogs ran off", "so", "big towns"]

pytestmark = pytest.mark.filterwarnings("ignore:ditto on")


@torch.no_grad()
def test_families_of_one_and_two_copies(tmp_path, monkeypatch):
    encoder = load("gpt2", tmp_path)
    found = families(Grid(copies=(2,), published=False), encoder.backbone)
    batch = lay(Layout(copies=2).write(TEXTS, encoder.backbone.tokenizer))
    readings = reading.read(encoder.backbone, found, batch)
    assert [r.rows[0].shape[1] for r in readings] == [3, 2, 4, 4]  # mean, last, weighted; values; Echo and ReBA; heads
    for family, one in zip(found, readings, strict=True):
        vectors = one.vectors(slice(None))
        assert vectors.shape == (4, len(family.rows), len(family.layers), 16)
        assert torch.allclose(one.total(), vectors.sum(0), atol=1e-12)
        for cells in (1, 200):
            monkeypatch.setattr(reading, "CELLS", cells)
            parts = [part for _, part in one.parts()]
            assert len(parts) > 1 and torch.allclose(torch.cat(parts, 1), vectors, atol=1e-12)
        for r in range(len(family.rows)):
            method = family.method(r, 0)[0]
            at = [family.layers.index(layer) for layer in States(family.kinds[0]).layers]
            slow = torch.from_numpy(Encoder(encoder.backbone, method).encode(TEXTS))
            assert torch.allclose(vectors[:, r, at].mean(1), slow, atol=1e-9), method


@torch.no_grad()
def test_what_is_held_is_counted(tmp_path):
    encoder = load("bert", tmp_path)
    batch = lay(Layout().write(TEXTS, encoder.backbone.tokenizer))
    heads = reading.read(encoder.backbone, families(Grid(published=False), encoder.backbone), batch)[-1]
    tokens = len(batch.tokens)
    assert heads.nbytes == 8 * tokens * (3 * 16 + 4)  # three states of 16, a weight for each of four heads
    assert heads.rows[0].shape[1] == 4
