"""``analyse gains``: what is printed is what the function finds."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run


def test_gains(run: Run, llama: Path, dev: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")  # the whole table beside each other
    words = ("analyse", "gains", "-m", llama, "--method", "classical", "--method", "bellm:last=1", "--pairs", dev)
    ended = run(*words)
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(run(*words, "--json").out)
    lines = ended.out.splitlines()
    assert lines[:2] == [f"first  {llama} classical", f"second {llama} bellm:last=1"]
    rows = [line.split() for line in lines[4:-1]]
    assert [row[0] for row in rows] == [f["by"] for f in found]
    whole = found[0]
    low, high = (100 * end for end in whole["interval"])
    mark = "*" if low > 0 or high < 0 else ""
    assert rows[0] == [
        "all", "all", "pairs", "30", f"{100 * whole['first']:.2f}", f"{100 * whole['second']:.2f}",
        f"{100 * whole['gain']:+.2f}{mark}", f"{low:+.2f}", "to", f"{high:+.2f}", "-", "-",
        f"{100 * whole['forward']:.0f}", "%",
    ]  # fmt: skip
    known = [end for f in found for end in (f["interval"][0], f["others_interval"][0]) if end is not None]
    assert f"of these {len(known)}, " in lines[-1]


WRONG = [
    (("-m", "LLAMA", "--method", "classical"), "1 x --model and 1 x --method: pass two of one of them"),
    (("-m", "LLAMA"), "1 x --model and 0 x --method"),
    (("-m", "LLAMA", "-m", "LLAMA", "--method", "echo"), "both encoders are the same"),
    (("-m", "LLAMA", *["--method", "echo", "--method", "classical", "--method", "reba"]), "3 x --method"),
    (
        ("-m", "LLAMA", "--method", "echo", "--method", "classical", "--pairs", "none.jsonl"),
        "none.jsonl does not exist",
    ),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[said[:24] for _, said in WRONG])
def test_what_is_wrong_is_one_line(run: Run, llama: Path, dev: Path, words: tuple[str, ...], said: str):
    known = {"LLAMA": llama}
    ended = run("analyse", "gains", "--pairs", dev, *(known.get(word, word) for word in words))
    assert ended.code == 2 and len(ended.err.splitlines()) == 1 and said in ended.err, ended.err
