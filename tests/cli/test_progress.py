"""The progress bar: on a terminal, on stderr, with rate and time left."""

import os
import pty
import re
import select
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from afterword.cli.progress import RowsBar


def drained(terminal: int) -> str:
    """All that a terminal was sent: it hands it out in pieces, and the last ones late."""
    sent = b""
    while select.select([terminal], [], [], 0.5)[0]:
        sent += os.read(terminal, 65_536)
    return sent.decode()


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, run) -> tuple[object, str]:
    """What `run` gives, and what the terminal behind its stderr was sent."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", os.fdopen(theirs, "w"))
    made = run()
    sys.stderr.flush()
    sent = drained(ours)
    sys.stderr.close()
    os.close(ours)
    return made, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)


def test_a_bar_with_rate_and_time_left(run: Run, gpt2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "in.txt").write_text("a text\n" * 64 + "\n")
    words = ("embed", "-m", gpt2, "--method", "classical", "-i", tmp_path / "in.txt", "--window", 16)
    ended, sent = on_a_terminal(monkeypatch, lambda: run(*words))
    assert ended.code == 1 and len(ended.rows) == 65
    assert re.search(r"100 % 65 rows [\d.]+ rows/s \d:\d\d:\d\d left \d:\d\d:\d\d", sent), sent
    assert "rejected: line 65: is empty" in sent and "65 rows in " in sent
    _, sent = on_a_terminal(monkeypatch, lambda: run(*words, "--no-progress"))
    assert "left" not in sent


def test_an_input_of_unknown_length(monkeypatch: pytest.MonkeyPatch):
    def run() -> None:
        with RowsBar(None) as bar:
            bar.begin(10, 3)
            bar.end()

    _, sent = on_a_terminal(monkeypatch, run)
    assert "3 rows" in sent and "%" not in sent


def test_it_moves_inside_a_window(monkeypatch: pytest.MonkeyPatch):
    seen = []
    with RowsBar(100) as bar:
        bar._draw = lambda at, rows: seen.append((at, rows))
        bar.begin(40, 10)
        bar.more(5)
        bar.more(50)  # what is embedded again, by halves, does not count beyond the window
        bar.end()
        bar.begin(100, 30)
        bar.more(10)
    assert seen == [(20, 5), (40, 10), (40, 10), (70, 20)]


def test_no_bar_where_nobody_looks(capsys: pytest.CaptureFixture[str]):
    with RowsBar(10) as bar:
        bar.begin(10, 10)
        bar.more(1)
    assert capsys.readouterr().err == "" and bar.seconds > 0
