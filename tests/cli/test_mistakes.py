"""What new users type, and what goes wrong: a table of command lines, with the exit code and the message of each."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run, command
from tests.tiny import tiny

from afterword import Encoder, reba

MISTAKES = r"""
# the model
2  embed -m ./no/such a                               there is no folder ./no/such$
2  embed -m afterword-mni a                           is not a folder .did you mean 'afterword-mini'.*HF_HUB_OFFLINE
2  embed -m someone/model a                           someone/model is not a folder, nor in the cache
2  embed -m '' a                                      '' names no model: give a folder, or a name on the hub
2  embed -m rows.csv a                                rows.csv is a file: give the folder that it is in
2  embed -m empty a                                   empty holds no config.json: give the folder of a model
2  embed -m above a                                   above holds no config.json: give above/model, which holds one
2  embed -m enc --revision main a                     enc is a folder and has no --revision main
2  embed -m prompts a                                 prompts is \[1, 2\]: it must be an object of strings by name
2  embed -m nested a                                  nested/config.json is nested too deeply
2  embed a                                            Missing option '-m' / '--model'
2  analyse dependency -m enc -m ./no -i rows.csv --field body    there is no folder ./no$
# the method
2  embed -m enc --method ecco a                       no method 'ecco' .did you mean 'echo'
2  embed -m enc --method REBA a                       no method 'REBA' .did you mean 'reba'
2  embed -m enc --method 'reba copies=2' a            write options after a colon, as in reba:copies=2
2  embed -m enc --method reba:pol=mean a              reba has no option 'pol' .did you mean 'pool'
2  embed -m enc --method reba:pool=men a              reba: pool='men' does not fit: give last or mean
2  embed -m enc --method reba:copies=two a            reba: copies='two' does not fit: give a whole number
2  embed -m enc --method 'reba:copies=2;pool=mean' a  separate options by commas
2  embed -m enc --method prompt:template=foo a        no template 'foo': there are eol,
2  embed -m enc --method prompt:template=csts a       the template holds \{condition\}
2  embed -m enc --condition x a                       the template holds no \{condition\}
2  tune -m enc --dev pairs.jsonl --out new --template foo        no template 'foo': there are eol,
2  evaluate -m enc --tasks pairs.jsonl --method ditto:head=9-1   error: head 9-1 .* does not exist: the model has
# words and options
2  embd                                               No such command 'embd'. Did you mean 'embed'
2  serve                                              No such command 'serve'
2  embed -m enc --metod x a                           No such option: --metod .*--method
2  embed -m enc --device gpu a                        'gpu' is no device: write cuda, mps or cpu
2  embed -m enc --device cuda a                       there is no GPU here: leave --device out
2  embed -m enc --dtype fp16 a                        'fp16' is not one of 'float32'
2  embed -m enc --truncate-dim 9999 a                 error: --truncate-dim 9999: vectors have 64 components
2  embed -m enc --prompt-name nosuch a                no prompt is named 'nosuch': there are query
2  embed -m enc --prompt x --prompt-name query a      give --prompt or --prompt-name, not both
2  embed -m enc --format csv a                        it says how a file is read, and texts are given
# files
2  embed -m enc -i nope.csv                           nope.csv does not exist
2  embed -m enc -i empty                              empty is a folder: give a file
2  embed -m enc -i rows.csv --field nope              rows.csv has no column 'nope': it has id, body
2  embed -m enc -i latin.csv --field sentence1        latin.csv is not UTF-8: byte 0xe4 at character 0 of line 2
2  embed -m enc -i bytes.txt                          bytes.txt is not UTF-8
2  embed -m enc -i blank.txt -o new.npy               no row could be embedded: 2 of 2 rejected
2  embed -m enc -o new.foo a                          new.foo has an unknown format: write a .jsonl
2  embed -m enc -o no/new.npy a                       no/new.npy cannot be written
2  embed -m enc -i rows.csv --field body -o same.npy --rejects same.npy      choose two files
2  similar -m enc a                                   one text alone: give another
2  words -m enc dog cat                               no row could be embedded: 1 of 1 rejected
2  tune -m enc --dev latin.csv --out new              latin.csv is not UTF-8: byte 0xe4
2  tune -m enc --dev nope.csv --out new               nope.csv does not exist: give a file of sentence1
2  compare nope                                       nope does not exist: give a folder that `afterword evaluate` wrote
2  compare empty --csv .                              . is a folder: give the name of a file in it
2  compare empty --csv no/x.csv                       no/x.csv cannot be written: there is no folder no
2  compare empty --plot no/x.png                      no/x.png cannot be written: there is no folder no
2  analyse turning-point -m enc --dev pairs.jsonl --plot no/x.png     there is no folder no
# tasks
2  evaluate -m enc --tasks stss --data .              no task or group 'stss' .did you mean 'sts'.*evaluate --list
2  evaluate -m enc --tasks sts                        --data: is needed: a folder .*, or hub to download them
2  evaluate -m enc --tasks sts --data nope            nope is not a folder: give one that holds the data sets, or "hub"
2  evaluate --sentence-transformer pickled --tasks pairs.jsonl        pickled cannot be loaded by sentence-transformers
# what is fitted
2  embed -m enc --post whiten a                       --post: is fitted to texts: give a file of them with --fit
2  embed -m enc --post whitten a                      no step 'whitten' .did you mean 'whiten'
2  embed -m enc --fit rows.txt a                      --fit: has no effect: no method .* and no step
2  embed -m enc --fit rows.txt --post normalise a     --fit: has no effect: no method .* and no step
2  embed -m enc --fit nope.txt --post centre a        nope.txt does not exist
2  embed -m enc --fit rows.txt --post centre --method echo --method reba a    --fit: goes with one method
2  embed -m enc --save new --method echo --method reba a    --save: goes with one method
2  embed -m enc --fit new.npy --post centre -o new.npy a    new.npy is written by this command
2  embed -m enc --fit rows.txt --post centre --method prompt:template=csts --condition x a    without \{condition\}
# options without effect
2  evaluate -m enc --tasks pairs.jsonl --fit target   --fit: has no effect
2  evaluate --sentence-transformer empty --dtype float16 --tasks pairs.jsonl  only --device goes with it
2  tune -m enc --dev pairs.jsonl --out new --heads none --plot x.png  --plot: draws the scores of heads
2  tune -m enc --texts rows.txt --out new --copies 2  --texts: chooses a head alone
2  train -m enc --data pairs.jsonl --out new --loss cosent --full-rank --rank 8    --rank: has no effect with
2  train -m enc --data pairs.jsonl --out new --loss cosent --fresh    --fresh: has no effect with no --add
2  train -m enc --data pairs.jsonl --out new --loss cosent --temperature 1    --temperature: has no effect with --loss
2  train -m enc --data pairs.jsonl --out new --mini-batch 8           --mini-batch: has no effect with --loss ranking
2  train -m enc --data pairs.jsonl --out new --scale 8                --scale: has no effect with --loss ranking
2  train -m enc --data pairs.jsonl --out new --steps 8 --epochs 2     --epochs: has no effect with --steps
2  train -m enc --data pairs.jsonl --out new --weights 0,20,1         --weights: has no effect with --loss ranking
2  train -m enc --data pairs.jsonl --out new --loss released --weights 1,2    weights=1,2: give three numbers from 0
2  train -m enc --data pairs.jsonl --out new --loss released --weights 1,0,1 --temperature 1    --temperature: has no ef
2  train -m enc --data pairs.jsonl --out new --loss released --weights 0,1,0 --scale 1    --scale: has no effect with w
2  train -m enc --data pairs.jsonl --out new --steps 1 --warmup 5     warmup=5 steps, and the run has one step: give le
2  train -m enc --data pairs.jsonl --out new --log-every 0            log_every=0: give 1 or more
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
    for name in ("enc", "prompts"):
        encoder.save(folder / name)
    settings = folder / "prompts" / "config_sentence_transformers.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "prompts": [1, 2]}))
    for name in ("empty", "nested", "pickled"):
        (folder / name).mkdir()
    (folder / "nested" / "config.json").write_text("[" * 200_000)
    (folder / "nested" / "model.safetensors").touch()
    kind = "sentence_transformers.models.WordEmbeddings"
    (folder / "pickled" / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": kind}]))
    (folder / "pickled" / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    (folder / "rows.csv").write_text("id,body\n1,a b\n2,c d e\n")
    (folder / "rows.txt").write_text("a b\nc d e\n")
    (folder / "blank.txt").write_text(" \n\t\n")
    (folder / "bytes.txt").write_bytes(bytes(range(256)))
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


def test_names_cannot_break_a_table(run: Run, place: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(place)
    method = 'prompt:template="a|b\x1b[31m <i>x\n{text}"'
    ended = run("evaluate", "-m", "above/model", "--method", method, "--tasks", "pairs.jsonl", "--out", tmp_path)
    rows = (tmp_path / "results.md").read_text().splitlines()
    assert ended.code == 0 and rows[-1].startswith(r'| prompt:template="a\|b\x1b\[31m &lt;i>x {text}" | ')
    assert "\x1b" not in ended.out + ended.err


def test_analyse_alone_is_a_question(run: Run):
    ended = run("analyse")
    assert (ended.code, ended.err) == (0, "") and "turning-point" in ended.out


def test_streams_that_were_closed_before_the_start():
    """Nothing can be written to a closed output; a closed input is an empty one."""
    shell = 'exec "$0" -m afterword "$@"'
    told = "error: the standard output is closed\n"
    for streams, words, code, out, err in (
        (">&-", "--version", 2, "", told),
        ("<&-", "similar -m afterword-mini", 2, "", "error: Invalid value for TEXT"),
        ("2>&-", "embed -m ./no a", 2, "", ""),
        ("<&- 2>&-", "methods reba", 0, "reba", ""),
    ):
        line = ["bash", "-c", f"{shell} {streams}", sys.executable, *words.split()]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120)
        assert done.returncode == code and done.stdout.startswith(out) and done.stderr.startswith(err), done


def test_messages_in_an_encoding_that_lacks_their_letters(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    _, err = (process := command("embed", "-m", "./é", "a")).communicate(timeout=120)
    assert process.returncode == 2 and err == b"error: there is no folder ./\\xe9\n"
