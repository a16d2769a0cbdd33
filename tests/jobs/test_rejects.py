import json
from pathlib import Path

import numpy as np
import pytest

from afterword.errors import TooLong
from afterword.files.atomic import temporary
from afterword.jobs.items import Item
from afterword.jobs.rejects import SHOWN, Rejects, bisected


def test_only_the_first_rejected_rows_are_told() -> None:
    told: list[str] = []
    with Rejects(None, told.append) as rejects:
        for line in range(100):
            rejects.add(line, line, "is blank")
    assert rejects.count == 100
    assert told == [f"rejected: line {line}: is blank" for line in range(SHOWN)]


def test_a_list_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "rejects.jsonl"
    path.write_text("of an earlier run")

    def interrupted() -> None:
        with Rejects(path) as rejects:
            rejects.add(0, 1, "is blank")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "of an earlier run" and list(tmp_path.iterdir()) == [path]
    with Rejects(path) as rejects:
        rejects.add(0, 1, "is blank")
    assert json.loads(path.read_text()) == {"row": 0, "line": 1, "reason": "is blank"}


def test_the_list_of_another_run_stays(tmp_path: Path) -> None:
    path, told = tmp_path / "rejects.jsonl", []
    with Rejects(path) as rejects:
        rejects.add(0, 1, "is blank")
    written = path.read_bytes()
    with Rejects(path, told.append):
        pass
    assert path.read_bytes() == written
    assert told == [f"{path} is the list of another run, and stays: this one has rejected no row"]


def test_what_a_killed_run_left_of_a_list_is_removed(tmp_path: Path) -> None:
    left = temporary(tmp_path / "rejects.jsonl")
    left.write_text("half a l")
    with Rejects(tmp_path / "rejects.jsonl"):
        pass
    assert not left.exists()


def test_refused_texts_are_found_by_halves():
    calls = []

    def encode(items):
        calls.append(len(items))
        if any(item.text == "long" for item in items):
            raise TooLong("text 0 has 9 tokens")
        return {"vector": np.array([[item.line] for item in items], np.float32)}

    items = [Item(i, "long" if i in (3, 11) else "short") for i in range(16)]
    made, why = bisected(encode, items, {"vector": np.zeros((0, 1), np.float32)})
    assert [i for i, reason in enumerate(why) if reason] == [3, 11] and why[3] == "has 9 tokens"
    assert made["vector"][:, 0].tolist() == pytest.approx(
        [i if i not in (3, 11) else np.nan for i in range(16)], nan_ok=True
    )
    assert len(calls) < 20


def test_a_file_that_is_no_list_of_rejected_rows_stays(tmp_path: Path) -> None:
    for name, text in (("notes.txt", "mine"), ("empty", ""), ("rows.jsonl", '{"text": "a"}\n')):
        (tmp_path / name).write_text(text)
        with Rejects(tmp_path / name):
            pass
        assert (tmp_path / name).read_text() == text
