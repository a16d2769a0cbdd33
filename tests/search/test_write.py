"""Merges can be repeated and run at once; one process writes at a time; a process may be killed at any time."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.search.rows import info, reader

from afterword.errors import DataError
from afterword.search.index import Index
from afterword.search.write import check_folder, merge, writing

WORKER = """
import sys
from pathlib import Path
from afterword.search.index import Index
from afterword.search.tune import index_texts, optimize
from afterword.search.write import merge
from tests.search.rows import reader
folder, mode = Path(sys.argv[1]), sys.argv[2]
index = Index.open(folder)
print("go", flush=True)
for turn in range(int(sys.argv[3])):
    ids = [str(i) for i in range(100 * turn, 100 * turn + 200)]
    merge(index, reader([f"text {i}" for i in ids], index.info, ids=ids).read_all())
    if mode in {"optimize", "all"}:
        optimize(index)
    if mode in {"texts", "all"}:
        if turn:
            index.table.drop_index("text_idx")
        index_texts(index)
"""


def worker(folder: Path, mode: str, turns: int = 10_000) -> "subprocess.Popen[bytes]":
    made = subprocess.Popen([sys.executable, "-c", WORKER, folder, mode, str(turns)], stdout=subprocess.PIPE)
    assert made.stdout is not None and made.stdout.readline() == b"go\n"
    return made


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.create(tmp_path / "a", reader(["x", "y"]), info(language="none"))


def test_a_merge_done_twice_is_done_once(index: Index):
    rows = reader(["new y", "z"], ids=["1", "2"]).read_all()
    merge(index, rows)
    merge(index, rows)
    found = index.table.to_arrow().sort_by("id")
    assert found["id"].to_pylist() == ["0", "1", "2"]
    assert found["text"].to_pylist() == ["x", "new y", "z"]
    assert Index.open(index.folder).info.identity == index.info.identity


def test_two_merges_of_the_same_ids_at_once_leave_no_duplicates(index: Index):
    processes = [worker(index.folder, "merge", 4) for _ in range(2)]
    assert all(process.wait() == 0 for process in processes)
    ids = Index.open(index.folder).table.to_arrow()["id"].to_pylist()
    assert sorted(ids, key=int) == [str(i) for i in range(500)]


@pytest.mark.parametrize(
    "mode", ["all", *(pytest.param(m, marks=pytest.mark.soak) for m in ("merge", "optimize", "texts"))]
)
def test_a_killed_process_leaves_a_whole_index(index: Index, mode: str):
    process = worker(index.folder, mode)
    time.sleep(random.Random(mode).uniform(0.1, 0.5))
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = Index.open(index.folder)
    rows = found.table.to_arrow()
    ids = sorted(map(int, rows["id"].to_pylist()))
    assert ids == list(range(len(ids))) and len(ids) % 100 in (0, 2)
    assert found.info.identity == index.info.identity
    merge(found, reader(["again"], ids=["0"]).read_all())
    assert found.rows == len(ids)


CREATOR = """
import os, sys
from pathlib import Path
import pyarrow as pa
from afterword.search.index import Index, schema_of
from tests.search.rows import info, reader
def batches():
    yield from reader(["x"] * 1000)
    os.kill(os.getpid(), 9)
Index.create(Path(sys.argv[1]), pa.RecordBatchReader.from_batches(schema_of(info()), batches()), info())
"""


def test_a_first_build_that_is_killed_leaves_no_index(tmp_path: Path):
    assert subprocess.run([sys.executable, "-c", CREATOR, tmp_path / "a"]).returncode == -signal.SIGKILL
    check_folder(tmp_path / "a")
    with pytest.raises(DataError, match="is not an index"):
        Index.open(tmp_path / "a")
    assert Index.create(tmp_path / "a", reader(["x", "y"]), info()).rows == 2


def test_one_process_writes_at_a_time(tmp_path: Path):
    with writing(tmp_path), pytest.raises(DataError, match="is writing"), writing(tmp_path):
        pass


def test_other_folders_are_left_alone(tmp_path: Path):
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(DataError, match="is not an index: give the name of a new folder"):
        check_folder(tmp_path)
    with pytest.raises(DataError, match="is a file"):
        check_folder(tmp_path / "letters.txt")
    check_folder(tmp_path / "new")
