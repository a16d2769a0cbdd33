"""How a run ends: a user's error is one line and exit code 2, never a traceback."""

import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from tests.cli.conftest import Run, command
from tests.killed import Piped

from afterword.cli.console import BUG, INTERRUPTED, Interrupted, State, ending, guarded, report_warnings, say
from afterword.errors import MissingExtra, TextsCut

EMBED = ["embed", "-m", "{gpt2}"]
WRONG = {
    "no such verb": (["embedd", "x"], "No such command 'embedd'"),
    "no such option": ([*EMBED, "--colour", "x"], "--colour"),
    "no model": (["embed", "x"], "--model"),
    "option without a value": (["embed", "x", "-m"], "requires an argument"),
    "a number that is none": ([*EMBED, "--batch-tokens", "many", "x"], "--batch-tokens"),
    "a number below its range": ([*EMBED, "--truncate-dim", "0", "x"], "--truncate-dim"),
    "a choice that is none": ([*EMBED, "--on-long", "cut", "x"], "--on-long"),
    "no such method": ([*EMBED, "--method", "rebba", "x"], "no method 'rebba' (did you mean 'reba'?): there are "),
    "no such method to show": (["methods", "rebba"], "no method 'rebba' (did you mean 'reba'?): there are "),
    "no such option of a method": ([*EMBED, "--method", "reba:copy=2", "x"], "no option 'copy'"),
    "a method's option that makes no sense": ([*EMBED, "--method", "reba:copies=0", "x"], "copies=0"),
    "a head that is not there": ([*EMBED, "--method", "ditto:head=0-9", "x"], "0-9"),
    "the same method twice": ([*EMBED, "--method", "echo", "--method", "echo", "x"], "twice"),
    "no method file": ([*EMBED, "--method", "@{tmp}/none.json", "x"], "none.json"),
    "no such file": ([*EMBED, "-i", "{tmp}/none.txt"], "none.txt does not exist"),
    "a folder as a file": ([*EMBED, "-i", "{tmp}/folder.txt"], "is a folder"),
    "an unknown input": ([*EMBED, "-i", "{tmp}/in.doc"], "unknown format"),
    "an unknown output": ([*EMBED, "-o", "{tmp}/out.doc", "x"], "unknown format"),
    "no such folder to write to": ([*EMBED, "-o", "{tmp}/none/out.npy", "x"], "cannot be written"),
    "an unknown column": ([*EMBED, "-i", "{tmp}/in.csv", "--column", "txt"], "'txt': it has a, b"),
    "no text column": ([*EMBED, "-i", "{tmp}/in.csv"], "no column 'text': it has a, b"),
    "an unknown field": ([*EMBED, "-i", "{tmp}/in.jsonl", "--field", "txt"], "'txt': it has body, id"),
    "a column of plain text": ([*EMBED, "-i", "{tmp}/in.txt", "--field", "txt"], "plain text"),
    "no parquet": ([*EMBED, "-i", "{tmp}/in.parquet"], "not a parquet file"),
    "parquet from stdin": ([*EMBED, "--format", "parquet"], "standard input"),
    "a file as a text": ([*EMBED, "{tmp}/in.txt"], "is a file: --input"),
    "texts and a file": ([*EMBED, "-i", "{tmp}/in.txt", "x"], "not both"),
    "the input as the output": (
        [*EMBED, "-i", "{tmp}/in.jsonl", "--field", "id", "-o", "{tmp}/in.jsonl"],
        "is the input",
    ),
    "two methods in one array": (
        [*EMBED, "--method", "echo", "--method", "reba", "-o", "{tmp}/o.npy", "x"],
        "one vector a row",
    ),
    "a prompt that is not there": ([*EMBED, "--prompt-name", "query", "x"], "'query'"),
    "no such model": (["embed", "-m", "{tmp}/no-model", "x"], "there is no folder"),
    "no model folder": (["embed", "-m", "{tmp}/folder.txt", "x"], "config.json"),
    "half a model folder": (["embed", "-m", "{tmp}/half", "x"], "safetensors"),
    "no such device": ([*EMBED, "--device", "tpu9", "x"], "'tpu9'"),
    "no such type": ([*EMBED, "--dtype", "int4", "x"], "--dtype"),
    "a template over the length": ([*EMBED, "--method", "prompt", "--max-length", "3", "x"], "--max-length 3"),
    "no [MASK]": ([*EMBED, "--method", "prompt:template=promptbert", "x"], "[MASK]"),
    "a layer that is not there": ([*EMBED, "--method", "bellm:last=9", "x"], "last=9"),
    "words without a text": (["words", "-m", "{gpt2}", "the dog"], "give a text and words"),
    "a word that is none": (["words", "-m", "{gpt2}", "the dog", "--occurrence", "dog"], "write WORD:N"),
    "a span that is none": (["words", "-m", "{gpt2}", "the dog", "--span", "4"], "write START:END"),
    "nothing to compare": (["similar", "-m", "{gpt2}", " "], "no text can be compared"),
}


@pytest.fixture
def tmp(tmp_path: Path, gpt2: Path) -> Path:
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").write_bytes((gpt2 / "config.json").read_bytes())
    for name in ("in.doc", "in.txt", "in.parquet"):
        (tmp_path / name).write_text("x\n")
    (tmp_path / "in.csv").write_text("a,b\n1,2\n")
    (tmp_path / "in.jsonl").write_text('{"id": 1, "body": "x"}\n')
    return tmp_path


@pytest.mark.parametrize("name", WRONG)
def test_a_users_error_is_one_line(run: Run, gpt2: Path, tmp: Path, name: str):
    words, told = WRONG[name]
    before = sorted(tmp.rglob("*"))
    ended = run(*(word.replace("{gpt2}", str(gpt2)).replace("{tmp}", str(tmp)) for word in words))
    assert ended.code == 2, ended
    assert ended.out == ""
    assert ended.last.startswith("error: ") and told in ended.last
    # Notes and rejected rows may stand in front of it, nothing else.
    assert all(re.match("warning: |rejected: ", line) for line in ended.err.splitlines()[:-1]), ended.err
    assert sorted(tmp.rglob("*")) == before


def test_errors_by_kind():
    assert ending(KeyboardInterrupt()) == ("interrupted", INTERRUPTED)
    assert ending(Interrupted("2 rows are kept")) == ("interrupted: 2 rows are kept", INTERRUPTED)
    assert ending(BrokenPipeError()) == ("", 141)
    assert ending(MissingExtra("pyarrow", "parquet")) == (
        'error: pyarrow is not installed: pip install "afterword[parquet]"', 2
    )  # fmt: skip
    assert ending(PermissionError(13, "Permission denied", "a.txt")) == ("error: a.txt: Permission denied", 2)
    assert ending(SystemExit(3)) == ("", 3)


def test_a_bug_is_one_line_and_a_traceback_only_if_asked_for(capsys: pytest.CaptureFixture[str]):
    def broken() -> None:
        raise IndexError("a mistake\nof ours")

    assert guarded(broken, State()) == BUG
    assert capsys.readouterr().err == "bug: IndexError: a mistake of ours; afterword --debug shows where\n"
    assert guarded(broken, State(debug=True)) == BUG
    assert "Traceback" in capsys.readouterr().err


def test_a_closed_pipe_under_a_run_is_quiet(run: Run, gpt2: Path, monkeypatch: pytest.MonkeyPatch):
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr(sys, "stdout", os.fdopen(write, "w"))
    ended = run("embed", "-m", gpt2, "--method", "classical", "dog")
    assert (ended.code, ended.err) == (141, "")


def test_debug_shows_where_an_error_came_from(run: Run, tmp_path: Path):
    ended = run("--debug", "embed", "-m", "x", "-i", tmp_path / "none.txt")
    assert ended.code == 2 and "Traceback" in ended.err and ended.last.startswith("error: ")


def test_without_a_verb_it_shows_its_help(run: Run):
    ended = run()
    assert ended.code == 0 and "Usage: afterword" in ended.out
    assert run("--version").out.startswith("afterword ")


def test_a_closed_pipe_is_quiet():
    process = command("embed", "--help", stdin=subprocess.DEVNULL)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(120) == 141


def test_a_full_disk_behind_stdout():
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "wb") as full:
        process = command("embed", "--help", stdin=subprocess.DEVNULL, stdout=full)
        _, err = process.communicate(timeout=120)
    assert err == b"error: No space left on device\n"
    assert process.returncode == 2


def test_an_interrupt_says_what_is_kept(gpt2: Path, tmp_path: Path):
    process = Piped("embed", "-m", gpt2, "--method", "classical", "-o", tmp_path / "out.npy", "--window", 10)
    process.stdin.write(b"dog\n\n" * 10)
    process.stdin.flush()
    # The input stays open, so that the run waits for more when it is interrupted.
    marker = tmp_path / "out.npy.parts" / "done" / "000001.json"
    while not process.ended() and not marker.exists():
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGTERM)
    err = process.stderr.read().decode()
    process.finish()
    kept = f"20 rows kept in {tmp_path / 'out.npy.parts'}; the same command goes on from there"
    assert (process.returncode, err) == (INTERRUPTED, f"interrupted: {kept}\n")
    assert [p.name for p in tmp_path.iterdir()] == ["out.npy.parts"]


def test_warnings_and_notes_are_one_line_each(capsys: pytest.CaptureFixture[str]):
    before = warnings.showwarning
    with report_warnings():
        warnings.warn("two\nlines", stacklevel=1)
        warnings.warn("two\nlines", stacklevel=1)
        warnings.warn("not for users", DeprecationWarning, stacklevel=1)
        logging.getLogger("afterword.files.write_encoder").warning("%s was chosen", "this")
    assert capsys.readouterr().err == "warning: two lines\nwarning: this was chosen\n"
    assert warnings.showwarning is before and not logging.getLogger("afterword").handlers


def test_texts_that_were_cut_are_summed_up(capsys: pytest.CaptureFixture[str]):
    with report_warnings():
        for _ in range(2):  # the same message twice is two windows, not one
            warnings.warn(TextsCut([3, 5, 100], 10, 16), stacklevel=1)
        assert capsys.readouterr().err == ""
    told = "warning: 6 texts truncated to 16 tokens (median 5, max 100 tokens dropped)\n"
    assert capsys.readouterr().err == told


def test_they_are_told_after_an_error_too(capsys: pytest.CaptureFixture[str]):
    def broken() -> None:
        with report_warnings():
            warnings.warn(TextsCut([3], 1, 16), stacklevel=1)
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert "1 text truncated" in capsys.readouterr().err


def test_a_line_is_one_line(capsys: pytest.CaptureFixture[str]):
    say("a\n  b\tc")
    assert capsys.readouterr().err == "a b c\n"


def test_advice_is_in_the_words_of_the_command_line_where_it_helps(run: Run, gpt2: Path, bert: Path):
    advice = "names no method: classical mean is used; try --method"
    assert run("embed", "-m", gpt2, "x").err == f"warning: {gpt2} {advice} reba or --method echo\n"
    assert run("embed", "-m", bert, "x").err == f"warning: {bert} {advice} ditto\n"
    assert run("embed", "-m", gpt2, "--method", "classical", "x").err == ""
