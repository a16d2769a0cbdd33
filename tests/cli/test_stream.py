"""What is held in memory does not grow with the input."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run, command

from afterword import Encoder, classical
from afterword.cli.stream import Item, bisected, windows
from afterword.errors import TooLong


def test_windows_hold_so_many_rows_and_so_many_characters():
    items = [Item(i, "x" * size) for i, size in enumerate([1, 1, 1, 50, 1, 99, 1])]
    assert [len(w) for w in windows(items, rows=3, characters=60)] == [3, 3, 1]
    assert [len(w) for w in windows(items, rows=100, characters=50)] == [4, 2, 1]
    assert list(windows([])) == []


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


def test_vectors_come_out_before_the_input_ends(gpt2: Path):
    process = command("embed", "-m", gpt2, "--method", "classical", "--window", 8)
    try:
        process.stdin.write(b"a text\n" * 8)
        process.stdin.flush()
        first = [json.loads(process.stdout.readline()) for _ in range(8)]  # and the input is still open
        assert all(row["text"] == "a text" for row in first)
        out, err = process.communicate(b"the last one, without an end of line", timeout=120)
    finally:
        process.kill()
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["the last one, without an end of line"]
    assert (process.returncode, err) == (0, b"")


def test_memory_does_not_grow_with_the_input(run: Run, gpt2: Path, tmp_path: Path):
    """Python's and numpy's own memory, at its peak, for 1,000 and for 10,000 rows: the vectors alone are 2.5 MB."""
    peaks, spec = (
        [],
        ("embed", "-m", gpt2, "--method", "classical", "--max-length", 4, "--on-long", "ignore", "--window", 250),
    )
    run(*spec, "dog")  # what is loaded once
    for rows in (1_000, 10_000):
        source, out = tmp_path / f"{rows}.txt", tmp_path / f"{rows}.npy"
        source.write_text("".join(f"{i} and so on\n" for i in range(rows)))
        tracemalloc.start()
        try:
            assert run(*spec, "-i", source, "-o", out).code == 0
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    made = np.load(out, mmap_mode="r")
    assert made.shape == (10_000, 64) and made.nbytes > 2.5e6
    assert peaks[1] < peaks[0] + 2.5e5, peaks
    texts = [f"{i} and so on" for i in (0, 249, 250, 9_999)]
    wanted = Encoder.load(gpt2, classical(), max_length=4).encode(texts, on_long="ignore")
    assert np.array_equal(made[[0, 249, 250, 9_999]], wanted)
