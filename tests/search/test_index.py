"""An index is made in one commit, and opened as it was made; what is none is refused by name."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.search.rows import PROBES, info, reader

from afterword.errors import DataError, MissingDataset
from afterword.search.index import JOB, OWN, TABLE, Index, exists, schema_of

TEXTS = ["the bank of the river", "银行提高了利率", 'O\'Brien "quoted" 👩‍👩‍👧']


def test_rows_come_back_as_they_were_given(tmp_path: Path):
    made = Index.create(tmp_path / "a", reader(TEXTS), info())
    found = Index.open(tmp_path / "a")
    assert found.rows == made.rows == 3
    assert found.table.to_arrow().drop_columns("vector") == reader(TEXTS).read_all().drop_columns("vector")
    expected = reader(TEXTS).read_all()["vector"].combine_chunks().flatten().to_numpy()
    vectors = found.table.to_arrow()["vector"].combine_chunks().flatten().to_numpy()
    assert np.array_equal(vectors, expected)
    assert found.info.identity == info().identity
    assert found.kept == []
    assert found.table.version == 1


def test_kept_columns_stand_before_the_vector():
    names = schema_of(info(), [pa.field("channel", pa.string())]).names
    assert names == [*OWN[:-1], "channel", "vector"]


def test_an_index_is_not_replaced(tmp_path: Path):
    Index.create(tmp_path, reader(TEXTS), info())
    with pytest.raises(DataError, match="is an index already"):
        Index.create(tmp_path, reader(TEXTS[:1]), info())
    assert Index.open(tmp_path).rows == 3


def test_what_is_no_index_is_refused(tmp_path: Path):
    with pytest.raises(MissingDataset, match="does not exist"):
        Index.open(tmp_path / "none")
    with pytest.raises(DataError, match="is not an index"):
        Index.open(tmp_path)
    (tmp_path / JOB).mkdir()
    with pytest.raises(DataError, match="first build"):
        Index.open(tmp_path)


def test_what_made_it_comes_back(tmp_path: Path):
    given = info(chunking="256", query_prompt_name="query", language="Chinese", text_search=False, prompt="p: ")
    Index.create(tmp_path / "a", reader(TEXTS, given), given)
    opened = Index.open(tmp_path / "a").info
    assert np.array_equal(opened.probes, PROBES)  # type: ignore[arg-type]
    assert {**vars(opened), "probes": 0} == {**vars(given), "probes": 0}


def test_a_damaged_index_is_one_line(tmp_path: Path):
    Index.create(tmp_path / "a", reader(TEXTS), info())
    versions = tmp_path / "a" / f"{TABLE}.lance" / "_versions"
    for manifest in versions.glob("*.manifest"):
        manifest.write_bytes(manifest.read_bytes()[:20])
    with pytest.raises(DataError, match="cannot be opened") as caught:
        Index.open(tmp_path / "a")
    assert "\n" not in str(caught.value)


def test_a_build_that_left_no_version_is_no_index(tmp_path: Path):
    Index.create(tmp_path / "a", reader(TEXTS), info())
    shutil.rmtree(tmp_path / "a" / f"{TABLE}.lance" / "_versions")
    assert not exists(tmp_path / "a")
    assert Index.create(tmp_path / "a", reader(TEXTS[:2]), info()).rows == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only folders")
def test_a_folder_that_cannot_be_written(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="cannot be written"):
        Index.create(tmp_path / "a", reader(TEXTS), info())


def test_a_foreign_table_is_refused(tmp_path: Path):
    import lancedb

    lancedb.connect(tmp_path).create_table(TABLE, pa.table({"id": ["a"], "text": ["b"]}))
    with pytest.raises(DataError, match="it has no column chunk, doc"):
        Index.open(tmp_path)
