"""What new users type, and what goes wrong: a table of command lines, with the exit code and the message of each."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.tiny import tiny

from afterword import Encoder, reba

MISTAKES = r"""
# the model
2  embed -m ./no/such a                               there is no folder ./no/such$
2  embed -m afterword-mni a                           is not a folder .did you mean 'afterword-mini'.*HF_HUB_OFFLINE
2  embed -m rows.csv a                                rows.csv is a file: give the folder that it is in
2  embed -m empty a                                   empty holds no config.json: give the folder of a model
2  embed -m above a                                   above holds no config.json: give above/model, which holds one
2  embed -m enc --revision main a                     enc is a folder and has no --revision main
2  embed a                                            Missing option '-m' / '--model'
# the method
2  embed -m enc --method ecco a                       no method 'ecco' .did you mean 'echo'
2  embed -m enc --method reba:pol=mean a              reba has no option 'pol' .did you mean 'pool'
2  embed -m enc --method reba:pool=men a              reba: pool='men' does not fit: give mean or last
2  embed -m enc --method prompt:template=foo a        no template 'foo': there are eol,
2  evaluate -m enc --tasks pairs.jsonl --method ditto:head=9-1   error: head 9-1 .* does not exist: the model has
# words and options
2  embd                                               No such command 'embd'. Did you mean 'embed'
2  embed -m enc --metod x a                           No such option: --metod .*--method
2  embed -m enc --device gpu a                        'gpu' is no device: write cuda, mps or cpu
2  embed -m enc --truncate-dim 9999 a                 error: --truncate-dim 9999: vectors have 64 components
2  embed -m enc --prompt-name nosuch a                no prompt is named 'nosuch': there are query
# files
2  embed -m enc -i nope.csv                           nope.csv does not exist
2  embed -m enc -i empty                              empty is a folder: give a file
2  embed -m enc -i rows.csv --field nope              rows.csv has no column 'nope': it has id, body
2  embed -m enc -i latin.csv --field sentence1        latin.csv is not UTF-8: byte 0xe4 at character 0 of line 2
2  embed -m enc -i blank.txt -o new.npy               no row could be embedded: 2 of 2 rejected
2  embed -m enc -o new.foo a                          new.foo has an unknown format: write a .jsonl
2  embed -m enc -o no/new.npy a                       no/new.npy cannot be written
2  embed -m enc -i rows.csv --field body -o same.npy --rejects same.npy      choose two files
2  embed -m enc -i rows.txt a                         give texts, or a file with --input, not both
2  embed -m enc -i pairs.jsonl --field sentence1 -o pairs.jsonl      is the input
2  embed -m enc --method echo --method reba -o new.npy a    one vector a row
2  embed -m enc --method bellm:last=9 a              last=9
2  similar -m enc a                                   one text alone: give another
2  compare nope                                       nope does not exist: give a folder that `afterword evaluate` wrote
# tasks
2  evaluate -m enc --tasks stss --data .              no task or group 'stss' .did you mean 'sts'.*evaluate --list
2  evaluate -m enc --tasks sts                        --data: is needed: a folder .*, or hub to download them
# what is fitted
2  embed -m enc --post whiten a                       --post: is fitted to texts: give a file of them with --fit
2  embed -m enc --fit rows.txt a                      --fit: has no effect: no method .* and no step
2  embed -m enc --fit nope.txt --post centre a        nope.txt does not exist
# options without effect
2  tune -m enc --texts rows.txt --out new --copies 2  --texts: chooses a head alone
2  train -m enc --data pairs.jsonl --out new --loss cosent --full-rank --rank 8    --rank: has no effect with
2  train -m enc --data pairs.jsonl --out new --steps 8 --epochs 2     --epochs: has no effect with --steps
2  train -m enc --data pairs.jsonl --out new --steps 1 --warmup 5     --warmup 5 steps, and the run has one step
"""
"""Exit code, command line, message: two blanks or more between them."""

ROWS = [re.split(r" {2,}", line) for line in MISTAKES.strip().splitlines() if not line.startswith("#")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of good and bad files, and a saved encoder."""
    folder = tmp_path_factory.mktemp("mistakes")
    plain = tiny("llama", folder / "above" / "model")
    encoder = Encoder.load(plain, reba())
    encoder.prompts = {"query": "q: "}
    encoder.save(folder / "enc")
    (folder / "empty").mkdir()
    (folder / "rows.csv").write_text("id,body\n1,a b\n2,c d e\n")
    (folder / "rows.txt").write_text("a b\nc d e\n")
    (folder / "blank.txt").write_text(" \n\t\n")
    (folder / "latin.csv").write_bytes("sentence1,sentence2,score\nä,ö,1\n".encode("latin-1"))
    rows = ({"sentence1": f"a {i}", "sentence2": f"b {i * i}", "score": i % 5} for i in range(40))
    (folder / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(("code", "line", "told"), ROWS, ids=[line for _, line, _ in ROWS])
def test_a_mistake(code: str, line: str, told: str, run: Run, place: Path, monkeypatch: pytest.MonkeyPatch):
    """One line says what is wrong and how to mend it, and no file is changed or made."""
    monkeypatch.chdir(place)
    before = listing(place)
    ended = run(*shlex.split(line))
    assert ended.code == int(code), ended
    assert ended.last.startswith("error: ") and re.search(told, ended.last), ended.err
    after = listing(place)
    assert {path: content for path, content in after.items() if path in before} == before
    assert all(".rejects." in path or "/results" in path for path in set(after) - set(before))


def test_a_method_that_does_not_fit_leaves_the_others(run: Run, place: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(place)
    methods = ("--method", "ditto:head=9-1", "--method", "classical", "--method", "ditto:head=1-99")
    ended = run("evaluate", "-m", "above/model", *methods, "--tasks", "pairs.jsonl", "--out", tmp_path)
    assert ended.code == 1 and "classical" in ended.out and "ditto" not in ended.out
    assert len(re.findall(r"^ditto:head=\S+: error: head .* does not exist: the model has", ended.err, re.M)) == 2
