import io
import json
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.disk import disk_of

from afterword.cli import main


def test_an_output_that_exists_stays_without_overwrite(run: Run, gpt2: Path, tmp_path: Path):
    out = tmp_path / "out.jsonl"
    out.write_bytes(b"what was there before")
    spec = ("embed", "-m", gpt2, "--method", "classical", "dog", "-o", out)
    ended = run(*spec)
    assert ended.code == 2 and out.read_bytes() == b"what was there before"
    assert str(out) in ended.last and "--overwrite" in ended.last
    assert run(*spec, "--overwrite").code == 0 and json.loads(out.read_text())["text"] == "dog"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize("out", ["none/out.npy", "out.doc", "in.txt.npy/out.npy"])
def test_outputs_are_checked_before_the_model_is_loaded(run: Run, tmp_path: Path, out: str):
    (tmp_path / "in.txt").write_text("dog\n")
    ended = run("embed", "-m", tmp_path / "no-model", "-i", tmp_path / "in.txt", "-o", tmp_path / out)
    assert ended.code == 2 and out.rpartition("/")[2] in ended.err and "no-model" not in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.parametrize("verb", ["embed", "embed -o out.npy", "embed -o job/", "words", "words -o out.npy", "index i"])
@pytest.mark.parametrize(
    ("name", "content", "value"),
    [
        ("in.jsonl", b'{"body": "dog", "word": "dog"}\n' * 3, "'text'"),
        ("in.jsonl", b'{"text": "dog", "word": "dog"}\n{"text": "caf\xe9", "word": "caf\xe9"}\n', "0xe9"),
        ("in.csv", b"body,word\ndog,dog\n", "'text'"),
    ],
)
def test_the_input_is_checked_before_the_model_is_loaded(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, name: str, content: bytes, value: str
):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    ended = run(*verb.split(), "-m", "./no-model", "-i", name)
    assert ended.code == 2 and value in ended.err and "no-model" not in ended.err
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_full_disk_under_the_list_of_rejected_rows(run: Run, gpt2: Path, tmp_path: Path):
    source, out = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("\n" * 1000 + "dog\n")
    spec = ("embed", "-m", gpt2, "--method", "classical", "-i", source, "-o", out, "--window", 100)
    with disk_of(40_000):  # a null row has 31 bytes, and a line of the list 46
        ended = run(*spec)
    assert ended.code == 2 and f"{out}.rejects.jsonl cannot be written" in ended.last
    assert sorted(p.name for p in tmp_path.iterdir()) == [".out.jsonl.job", "in.txt"]
    assert run(*spec).code == 1 and len(out.read_text().splitlines()) == 1001


def test_rejected_rows_where_the_user_wants_them(run: Run, gpt2: Path, tmp_path: Path):
    ended = run("embed", "-m", gpt2, "--method", "classical", "dog", "", "--rejects", tmp_path / "bad.jsonl")
    assert ended.code == 1 and len(ended.rows) == 2
    assert json.loads((tmp_path / "bad.jsonl").read_text()) == {"row": 1, "line": 2, "reason": "is empty"}


def test_an_output_that_appears_while_the_input_is_awaited_stays(
    run: Run, gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "out.jsonl"
    spec = ("embed", "-m", gpt2, "--method", "classical", "-o", out)

    class Awaited(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            out.write_text("of another")
            return super().readline(size)

        read = read1 = readline

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Awaited(b"dog\n")))
    code = main([str(word) for word in spec])
    assert code == 2 and f"{out} has appeared" in capsys.readouterr().err and out.read_text() == "of another"
    out.unlink()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"dog\n")))
    assert main([str(word) for word in spec]) == 0
    assert json.loads(out.read_text())["text"] == "dog" and list(tmp_path.iterdir()) == [out]
