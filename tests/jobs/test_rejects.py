import json
from pathlib import Path

import numpy as np
import pytest

from afterword.errors import TooLong
from afterword.jobs.output import SHOWN, Rejects
from afterword.jobs.rows import Item, bisected


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
