"""Every array of the oracle that belongs to an embedding method, through the public API."""

from __future__ import annotations

import json
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.oracle.table import ANGLE031, LEFT_OUT, TABLE, Inputs, relative

from afterword import Encoder, Method
from afterword.backbone.loading import load_backbone

FOLDER = Path(__file__).parents[2] / "../shared/oracle"


@lru_cache
def backbone(folder: Path, model: str, dtype: str):
    return load_backbone(folder / "models" / model, dtype=getattr(torch, dtype))


def tolerance(model: str, dtype: str) -> float:
    if dtype == "float32":
        return 2e-5
    return 2e-6 if model == "llama_gqa" else 1e-10


@lru_cache
def inputs(folder: Path, model: str, dtype: str) -> Inputs:
    manifest = json.loads((folder / "manifest.json").read_text())
    ids = json.loads((folder / "input_ids.json").read_text())[model]
    own = backbone(folder, model, dtype)
    prefix, suffix = len(own.tokenizer.prefix), len(own.tokenizer.suffix)
    content = ids.get("nospecial") or [row[prefix : len(row) - suffix] for row in ids["plain"]]

    def encoder(method: Method) -> Encoder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Encoder(own, method)

    return Inputs(
        encoder, manifest["sentences"], content, ids, manifest["words"], manifest["conditions"], manifest["long_doc"]
    )


@lru_cache
def arrays(folder: Path) -> list[dict]:
    if not (folder / "manifest.json").exists():
        return []
    return [
        a
        for a in json.loads((folder / "manifest.json").read_text())["arrays"]
        if a["file"].startswith("vectors/") and a["key"] not in LEFT_OUT
    ]


def oracle_folder() -> Path:
    import os

    return Path(os.environ.get("AFTERWORD_SHARED", Path(__file__).parents[2] / "../shared")) / "oracle"


FILES = sorted({a["file"] for a in arrays(oracle_folder())})


def test_the_oracle_is_there(oracle: Path) -> None:
    """So that a missing oracle shows as one skip, not as silence."""
    assert len(arrays(oracle)) > 980


@pytest.mark.parametrize("file", FILES)
def test_file(file: str) -> None:
    """All arrays of one file."""
    folder = oracle_folder()
    expected = np.load(folder / file)
    wrong, seen = [], 0
    for a in (a for a in arrays(folder) if a["file"] == file):
        table = ANGLE031 if "angle031sum" in file and a["key"] in ANGLE031 else TABLE
        assert a["key"] in table, f"{a['key']} has no row in the table"
        given = inputs(folder, a["model"], a["dtype"])
        try:
            got = relative(table[a["key"]](given), expected[a["key"]])
        except Exception as e:
            wrong.append(f"{a['key']}: {type(e).__name__}: {str(e)[:200]}")
            continue
        seen += 1
        if not got <= tolerance(a["model"], a["dtype"]):
            wrong.append(f"{a['key']}: {got:.1e}")
    assert not wrong, f"{len(wrong)} of {len(wrong) + seen}:\n" + "\n".join(wrong)
    assert seen
