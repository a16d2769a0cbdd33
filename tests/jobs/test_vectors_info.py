"""What vectors were made by can be read back from the file, or is said to be missing."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afterword.errors import DataError
from afterword.jobs.stored import VectorsInfo, read_info, to_notes

PROBES = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
INFO = VectorsInfo("a/model", {"name": "m"}, "f" * 32, "1" * 32, 2, True, "an instruction: ", PROBES)


def table(path: Path, columns: list[str], notes: dict[str, str]) -> Path:
    vectors = pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))
    written = pa.table({"text": ["a"], **dict.fromkeys(columns, vectors)})
    pq.write_table(written.replace_schema_metadata(notes), path)
    return path


@pytest.mark.parametrize("columns", [["vector"], ["echo", "prompt:template=a.b"]])
def test_it_is_read_as_it_was_written(tmp_path: Path, columns: list[str]):
    infos = {name: VectorsInfo(**{**vars(INFO), "identity": name}) for name in columns}
    found = read_info(table(tmp_path / "a.parquet", columns, to_notes(infos)))
    assert list(found) == columns
    for name, info in found.items():
        given, back = vars(infos[name]), vars(info)
        assert np.array_equal(back.pop("probes"), PROBES)
        assert back == {k: v for k, v in given.items() if k != "probes"}


def test_no_prompt_is_not_an_empty_one(tmp_path: Path):
    bare = VectorsInfo(**{**vars(INFO), "prompt": None})
    (info,) = read_info(table(tmp_path / "a.parquet", ["vector"], to_notes({"vector": bare}))).values()
    assert info.prompt is None


@pytest.mark.parametrize("broken", ["probes", "method", "normalized", "dimension"])
def test_a_file_that_does_not_say_it_is_refused(tmp_path: Path, broken: str):
    notes = to_notes({"vector": INFO})
    for changed in (
        {},
        {k: v for k, v in notes.items() if not k.endswith(broken)},
        {**notes, f"afterword.{broken}": "?"},
    ):
        with pytest.raises(DataError, match=r"a\.parquet does not say what its vectors were made by: write it anew"):
            read_info(table(tmp_path / "a.parquet", ["vector"], changed))


def test_what_is_no_parquet_file_is_refused(tmp_path: Path):
    (tmp_path / "a.parquet").write_text("no")
    with pytest.raises(DataError, match=r"a\.parquet cannot be read as a \.parquet file: "):
        read_info(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="cannot be read"):
        read_info(tmp_path / "none.parquet")
