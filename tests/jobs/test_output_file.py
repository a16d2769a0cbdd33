"""What cannot be written is refused early."""

from pathlib import Path

import pytest

from afterword.errors import InputError
from afterword.jobs.output_file import Output


def test_what_cannot_be_written_is_refused_before_anything_is_read(tmp_path: Path):
    source = tmp_path / "a.jsonl"
    source.write_text("{}\n")
    with pytest.raises(InputError, match="is the input: choose another file"):
        Output(source, None, {}).check(source, 1)
    with pytest.raises(InputError, match="is the input"):
        Output(tmp_path / "b.jsonl", source, {}).check(source, 1)
    with pytest.raises(InputError, match="one vector a row, and 2 methods are given"):
        Output(tmp_path / "b.npy", None, {}).check(source, 2)
    assert Output(tmp_path / "b.npy", None, {}).listing == tmp_path / "b.npy.rejects.jsonl"


@pytest.mark.parametrize("ending", [".writing", ".partial"])
def test_files_that_stand_for_the_output_meanwhile_are_no_input(tmp_path: Path, ending: str):
    source = tmp_path / f"b.jsonl{ending}"
    source.write_text("{}\n")
    with pytest.raises(InputError, match="is the input: choose another file"):
        Output(tmp_path / "b.jsonl", None, {}).check(source, 1)


def test_vectors_and_rejected_rows_go_to_two_files(tmp_path: Path):
    with pytest.raises(InputError, match=r"given for the vectors and for the rejected rows: choose two files"):
        Output(tmp_path / "b.jsonl", tmp_path / "b.jsonl", {}).check(None, 1)
