"""Probe vectors tell encoders apart, and see through what changes nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import tiny

from afterword import Encoder, classical, prompt
from afterword.jobs.stored import TEXTS, TOLERANCE, probe_difference, probes, probes_agree


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("gpt2", tmp_path_factory.mktemp("model") / "gpt2")


def test_they_are_what_encode_gives(folder: Path):
    encoder = Encoder.load(folder, classical())
    assert np.array_equal(probes(encoder), encoder.encode(list(TEXTS), on_long="ignore"))
    assert len(TEXTS) == 8


def test_the_same_encoder_agrees_and_another_does_not(folder: Path):
    encoder = Encoder.load(folder, classical())
    stored = probes(encoder)
    assert probe_difference(stored, probes(Encoder.load(folder, classical()))) == 0
    assert not probes_agree(stored, probes(replace(encoder, method=classical("last"))))
    with torch.no_grad():
        next(encoder.backbone.model.parameters()).mul_(1.01)
    assert not probes_agree(stored, probes(encoder))


def test_a_template_with_a_condition(folder: Path):
    assert probes(Encoder.load(folder, prompt("csts"))).shape[0] == 8


def test_the_limit_is_a_share_of_the_length():
    stored = np.full((8, 4), 5.0, np.float32)  # of length 10
    near, far = stored.copy(), stored.copy()
    near[3, 2] += 10 * TOLERANCE * 0.9
    far[3, 2] += 10 * TOLERANCE * 1.1
    assert probes_agree(stored, near) and not probes_agree(stored, far)


def test_other_shapes_and_missing_vectors_do_not_agree():
    stored = np.ones((8, 4), np.float32)
    gone = stored.copy()
    gone[2] = np.nan
    assert probe_difference(stored, stored[:, :3]) == float("inf")
    assert probe_difference(stored, gone) == float("inf") == probe_difference(gone, stored)
    assert probe_difference(gone, gone) == 0
    assert probe_difference(np.zeros((8, 4)), np.zeros((8, 4))) == 0
