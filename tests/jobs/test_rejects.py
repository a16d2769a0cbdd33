import json
from pathlib import Path

import pytest

from afterword.jobs.rejects import SHOWN, Rejects


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
    with Rejects(path):
        pass
    assert not path.exists()
