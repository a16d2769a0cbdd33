"""The progress bar: on a terminal, on stderr, with rate and time left."""

import os
import pty
import re
import select
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import Run

from afterword.cli.progress import EVERY, CountedBar, RowsBar


def drained(terminal: int) -> str:
    """All that a terminal was sent: it hands it out in pieces, and the last ones late."""
    sent = b""
    while select.select([terminal], [], [], 0.5)[0]:
        sent += os.read(terminal, 65_536)
    return sent.decode()


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, run) -> tuple[object, str]:
    """What `run` gives, and what the terminal behind its stderr was sent."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
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


def test_inside_a_window_it_counts_characters_from_the_longest_text():
    seen = []
    with RowsBar(100) as bar:
        bar._draw = lambda at, rows: seen.append((at, rows))
        bar.begin(100, 5, [10, 50, 20, 20])  # and a row without a text
        for _ in range(4):
            bar.more(1)
    assert seen == [(50, 1), (70, 2), (90, 3), (100, 4)]


def estimates(windows: list[list[int]], done: int = 0) -> Iterator[tuple[float, float, float]]:
    """The share of the work that is done, the time left and its estimate, after each batch of a run whose time goes
    by characters; the first windows were embedded before."""
    now, at, rows = 1000.0, 0, 0
    work = sum(map(sum, windows[done:]))
    with RowsBar(sum(map(sum, windows)), False, lambda: now) as bar:
        spent = 0
        now += 30  # the model is loaded
        for number, texts in enumerate(windows):
            at, rows = at + sum(texts), rows + len(texts)
            if number < done:
                bar.skip(at, rows)
                continue
            bar.begin(at, rows, texts)
            for i in range(0, len(texts), 16):
                batch = sorted(texts, reverse=True)[i : i + 16]
                spent += sum(batch)
                now += sum(batch) / 1000
                bar.more(len(batch))
                yield spent / work, (work - spent) / 1000, bar.left
            bar.end()


@given(st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_the_time_left_is_right_from_five_percent_on(seed: int, done: int):
    """Windows of lengths from another distribution each: short ones, long ones, a few giants among many words."""
    random = Random(seed)
    windows = []
    for _ in range(random.randint(done + 1, 30)):
        mean = random.choice([20, 200, 2000])
        windows.append([max(1, int(random.expovariate(1 / mean))) for _ in range(random.randint(1, 200))])
    for share, left, estimate in estimates(windows, done):
        assert share < 0.05 or left == pytest.approx(0, abs=1e-6) or left / 1.5 <= estimate <= left * 1.5


@pytest.mark.parametrize(
    ("total", "told"),
    [
        (200, ["matrices: 3 of 200 texts, left 0:32:50", "matrices: 6 of 200 texts, left 0:32:20"]),
        (None, ["matrices: 3 texts in 0:00:30", "matrices: 6 texts in 0:01:00"]),
        (6, ["matrices: 3 of 6 texts, left 0:00:30"]),  # nothing is left after the last
    ],
)
def test_a_line_after_each_half_minute_where_no_terminal_is(
    total: int | None, told: list[str], capsys: pytest.CaptureFixture[str]
):
    times = iter([0.0, *(10.0 * i for i in range(7))])
    assert EVERY == 30
    with CountedBar("matrices", "texts", total, lambda: next(times)) as bar:
        for _ in range(6):
            bar.update()
    assert capsys.readouterr().err.splitlines() == told
