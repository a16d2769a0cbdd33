"""``afterword index``: what its options ask for, and what is refused."""

from pathlib import Path

import pytest
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-m", "x", "--status", "--optimize"], "give --status or --optimize"),
        ([], "Give one, such as -m minilm"),
        (["-m", "x", "--kind", "hnsw"], "'hnsw': write sq or pq"),
        (["-m", "x", "--kind", "pq", "--exact"], "--exact asks for none"),
        (["-m", "x", "--late"], "it needs chunks"),
        (["-m", "x", "--keep", "hash"], "'hash'"),
        (["-m", "x", "--keep", "_distance"], "'_distance'"),
        (["-m", "x", "--keep", "a.b"], "'a.b'"),
    ],
)
def test_wrong_options_are_refused(run: Run, tmp_path: Path, words: list[str], told: str):
    ended = run("index", tmp_path / "a", *words)
    assert ended.code == 2 and told in ended.err
    assert not (tmp_path / "a").exists()


def test_no_index_is_named(run: Run, tmp_path: Path):
    ended = run("index", tmp_path / "none", "--status")
    assert ended.code == 2 and "none does not exist" in ended.err
