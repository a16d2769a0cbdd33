"""The encoder that an index names is loaded, guarded, and never runs code of an index."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Run

pytest.importorskip("lancedb")

from afterword.cli.model import ModelChoice
from afterword.cli.searching import encoder_of
from afterword.errors import DataError
from afterword.search.index import Index


@pytest.fixture
def folder(run: Run, gpt2: Path, tmp_path: Path) -> Path:
    shutil.copytree(gpt2, tmp_path / "model")
    (tmp_path / "t.txt").write_text("the bank\nthe river\n")
    given = ["-m", tmp_path / "model", "--method", "reba:copies=3", "-i", tmp_path / "t.txt"]
    assert run("index", tmp_path / "a", *given).code == 0
    return tmp_path / "a"


def test_the_index_names_model_and_method(folder: Path):
    index = Index.open(folder)
    assert encoder_of(index, ModelChoice(""), None).identity == index.info.identity


def test_another_method_is_refused(folder: Path):
    with pytest.raises(DataError, match="was made by"):
        encoder_of(Index.open(folder), ModelChoice(""), "classical")


def test_a_model_that_is_gone_is_named(run: Run, folder: Path):
    (folder.parent / "model").rename(folder.parent / "moved")
    ended = run("search", folder, "bank")
    assert ended.code == 2 and "names the model" in ended.err and ended.err.endswith("give -m MODEL\n")
    assert run("search", folder, "bank", "-m", folder.parent / "moved").code == 0
    assert run("search", folder, "bank", "--by", "text").code == 0  # words need no model


def test_a_class_that_an_index_names_is_not_imported(folder: Path):
    index = Index.open(folder)
    own = {**index.info.method, "weigh": {"kind": "mine", "class": "mine.Mine"}}
    index.info = replace(index.info, method=own)
    with pytest.raises(DataError, match=r"runs no code, .* give -m and --method: .*mine"):
        encoder_of(index, ModelChoice(""), None)
