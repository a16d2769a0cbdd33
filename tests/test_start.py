"""docs/start.md: its figures are computed, and its models are of types that run exactly."""

import json

import pytest
from scripts.generate_models_table import sort_of
from scripts.generate_start import MODELS, PAGE, parameters, renewed, size

from afterword import Encoder

ALL = [start for models in MODELS.values() for start in models]


def test_the_page_is_as_it_is_generated():
    page = PAGE.read_text("utf-8")
    assert renewed(page) == page, "docs/start.md is out of date: run scripts/generate_start.py"
    assert all(f"| {start.name} |" in page for start in ALL)


def test_parameters_are_those_of_the_model(minilm):
    backbone = Encoder.load(minilm).backbone
    (start,) = (start for start in ALL if start.name == "sentence-transformers/all-MiniLM-L6-v2")
    count = sum(p.numel() for p in backbone.model.parameters())
    assert parameters(start) == (count, backbone.facts.width) and start.tokens == 256
    assert [size(4 * count), size(2 * count), size(1e9)] == ["91 MB", "45 MB", "1.0 GB"]


@pytest.mark.parametrize("kind", sorted({start.type for start in ALL}))
def test_every_type_runs_exactly(kind, root):
    (row,) = (r for r in json.loads((root / "docs/models.json").read_text("utf-8"))["types"] if r["kind"] == kind)
    assert sort_of(row) in ("exact", "other"), "other: by the model's own attention"
