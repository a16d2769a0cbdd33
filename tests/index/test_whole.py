"""LanceDB commits files that lack their last bytes where a disk is full: what it has written so is undone."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.disk import disk_of
from tests.index.rows import info, reader

from afterword.errors import DataError
from afterword.index.index import TABLE, Index, exists
from afterword.index.rows import delete
from afterword.index.tune import has_index, index_texts, index_vectors, optimize
from afterword.index.whole import readable, reason_of, whole, written
from afterword.index.write import merge

TEXTS = [f"word{n} of the bank" for n in range(300)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with rows in two files, some of which are deleted, and a text index."""
    english = info(language="English")
    index = Index.create(tmp_path_factory.mktemp("made") / "a", reader(TEXTS, english), english)
    merge(index, reader(TEXTS[:100], ids=[f"new{n}" for n in range(100)]).read_all())
    delete(index, ["7", "new8"])
    index_texts(index)
    return index.folder


def merged(index: Index) -> None:
    with whole(index):
        merge(index, reader(TEXTS, ids=[f"more{n}" for n in range(300)]).read_all())


def texts_again(index: Index) -> None:
    with written(index.folder):
        index.table.drop_index("text_idx")
    index_texts(index)


WRITES: dict[str, Callable[[Index], None]] = {
    "merge": merged,
    "delete": lambda index: delete(index, [str(n) for n in range(20, 90)]),
    "texts": texts_again,
    "vectors": lambda index: index_vectors(index, "sq"),
    "optimize": optimize,
}


def sizes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def rows(index: Index) -> list[str]:
    return sorted(index.table.search().select(["id"]).to_arrow()["id"].to_pylist())


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("name", WRITES)
def test_a_file_that_misses_its_last_byte_leaves_the_index_as_it_was(name: str, made: Path, tmp_path: Path):
    before, there = rows(Index.open(made)), sizes(made)
    shutil.copytree(made, tmp_path / "whole")
    WRITES[name](Index.open(tmp_path / "whole"))
    after = rows(Index.open(tmp_path / "whole"))
    limits = {size for path, size in sizes(tmp_path / "whole").items() if path not in there}
    refused = list[str]()
    for limit in sorted(limits):
        shutil.copytree(made, folder := tmp_path / str(limit))
        index = Index.open(folder)
        try:
            with disk_of(limit - 1):
                WRITES[name](index)
        except DataError as e:
            refused.append(str(e).removeprefix(f"{folder} cannot be written: "))
        for found in (index, Index.open(folder)):
            assert readable(found.table) and rows(found) in (before, after)
    assert refused and not any(str(Path("/")) in told for told in refused)


def test_a_first_build_that_is_cut_short_is_none(tmp_path: Path):
    data = Index.create(tmp_path / "whole", reader(TEXTS), info()).folder
    size = max(size for path, size in sizes(data).items() if "/data/" in path)
    with disk_of(size - 1), pytest.raises(DataError, match="cannot be written: the end of a file is missing"):
        Index.create(tmp_path / "a", reader(TEXTS), info())
    assert not exists(tmp_path / "a")
    with disk_of(size // 2), pytest.raises(DataError, match=r"a cannot be written: File too large$"):
        Index.create(tmp_path / "a", reader(TEXTS), info())
    assert not exists(tmp_path / "a") and Index.create(tmp_path / "a", reader(TEXTS), info()).rows == 300


def test_what_a_killed_process_left_cut_short_is_mended(made: Path, tmp_path: Path):
    shutil.copytree(made, tmp_path / "a")
    before, there = rows(Index.open(made)), sizes(made)
    for write in (merged, WRITES["delete"], merged):
        write(Index.open(tmp_path / "a"))
    for path in sizes(tmp_path / "a").keys() - there.keys():
        if "/data/" in path:
            cut(tmp_path / "a" / path)
    said: list[str] = []
    found = Index.open(tmp_path / "a").mended(said.append)
    assert found is not None and rows(found) == before
    assert said == [
        f"warning: the last write of {tmp_path / 'a'} is undone: the end of a file is missing, as on a full disk"
    ]
    again = found.mended(said.append)
    assert again is found and has_index(again, "text") and len(said) == 1


def test_a_first_version_that_is_cut_short_is_none_and_one_of_many_is_not_removed(made: Path, tmp_path: Path):
    index = Index.create(tmp_path / "a", reader(TEXTS), info())
    (data,) = (tmp_path / "a" / f"{TABLE}.lance" / "data").iterdir()
    cut(data)
    said: list[str] = []
    assert Index.open(index.folder).mended(said.append) is None and not exists(index.folder)
    assert said == [f"warning: {index.folder} is built anew: the end of a file is missing, as on a full disk"]
    shutil.copytree(made, tmp_path / "b")
    for data in (tmp_path / "b" / f"{TABLE}.lance" / "data").iterdir():
        cut(data)
    with pytest.raises(DataError, match=r"b cannot be read: .* remove the folder, and index anew"):
        Index.open(tmp_path / "b").mended(said.append)
    assert exists(tmp_path / "b")


def test_a_reason_has_no_place_in_the_source_of_lancedb():
    assert reason_of(RuntimeError("lance error: no (os error 28), /root/.cargo/a-1/b.rs:1:2")) == os.strerror(28)
    assert reason_of(RuntimeError("lance error: what, /root/.cargo/a-1/b.rs:1:2\nmore")) == "lance error: what"
    assert reason_of(OSError()) == "OSError"
