"""Help pages: short and long options, options in groups, whole summaries, and examples that run as typed."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.test_options import VERBS
from tests.tiny import tiny
from transformers import AutoConfig, AutoModelForCausalLM

from afterword.cli.help import EXAMPLES, GROUPS, group_of


def test_h_is_help(run: Run):
    for words in ([], ["embed"], ["analyse"], ["analyse", "words"]):
        assert run(*words, "-h").out == run(*words, "--help").out != ""


def test_summaries_are_whole(run: Run):
    for words in ([], ["analyse"]):
        commands = run(*words, "-h").out.partition("Commands:")[2].partition("Examples:")[0]
        assert "..." not in commands
        assert all(row.rstrip().endswith(".") for row in re.split(r"\n(?=  \S)", commands.strip()))


def test_options_are_in_groups_and_no_word_is_broken(run: Run):
    known = set()
    for verb in VERBS:
        page = run(*verb.split(), "-h").out
        sections = dict(re.findall(r"^([A-Z][A-Za-z ]*):\n((?:  .*\n)+)", page, flags=re.M))
        assert "Examples" in sections or verb == "analyse"
        assert not re.search(r"\w-\n", page), f"{verb}: a word is broken at its hyphen"
        for title, rows in sections.items():
            names = re.findall(r"^  (?:-\w, )?--([a-z-]+)", rows, flags=re.M)
            known |= set(re.findall(r"--([a-z-]+)", rows))
            if len(sections) > 3 and names:
                assert {group_of([f"--{name}"]) for name in names} == {title}, verb
                assert title != "Options" or set(names) <= {"help", "list"}, f"{verb}: {names} are in no group"
    dead = {name for names in GROUPS.values() for name in names.split()} - known
    assert not dead, f"no verb has these options: {dead}"


def test_a_missing_model_is_asked_for_with_an_example(run: Run):
    assert run("embed", "x").err == "error: Missing option '-m' / '--model'. Give one, such as -m minilm.\n"
    assert run("tune", "-m", "minilm").err == "error: Missing option '--out'.\n"


class Terminal:
    """A stream that is a terminal, around one that is not."""

    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name: str):
        return getattr(self.stream, name)

    def isatty(self) -> bool:
        return True


def test_headings_are_bold_and_errors_red_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch):
    plain = run("embed", "-h").out
    assert "\x1b" not in plain and run("embd").err.startswith("error: No such command 'embd'. Did you mean 'embed'?")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Terminal(getattr(sys, name)))
    bold = run("embed", "-h").out
    assert "\x1b[1mSpeed and memory:\x1b[0m\n" in bold and re.sub(r"\x1b\[\d+m", "", bold) == plain
    assert run("embd").err.startswith("\x1b[31merror:\x1b[0m No such command")
    monkeypatch.setenv("NO_COLOR", "1")
    assert run("embed", "-h").out == plain and run("embd").err.startswith("error: ")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the examples name, and small models under the names of the models."""
    folder = tmp_path_factory.mktemp("examples")
    tiny("bert", folder / "minilm")
    tiny("llama", folder / "afterword-mini")
    whole = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder / "afterword-mini"))
    whole.save_pretrained(folder / "afterword-mini")  # with a language-modelling head
    texts = [f"{word} {i}" for i, word in enumerate("cat dog king river bank".split() * 40)]
    (folder / "texts.txt").write_text("\n".join(texts[:8]) + "\n")
    (folder / "tickets.csv").write_text("id,body\n" + "".join(f"{i},{text}\n" for i, text in enumerate(texts[:8])))
    (folder / "queries.jsonl").write_text('{"id": "q", "text": "dog"}\n')
    (folder / "judged.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    rows = list(zip(texts[::3], texts[1::3], texts[2::3], strict=False))
    pairs = [{"sentence1": a, "sentence2": b, "score": i % 6} for i, (a, b, _) in enumerate(rows)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    triplets = [{"anchor": a, "positive": b, "negative": c} for a, b, c in rows]
    (folder / "triplets.jsonl").write_text("".join(json.dumps(triplet) + "\n" for triplet in triplets))
    return folder


@pytest.mark.parametrize("verb", EXAMPLES)
def test_examples_run_as_typed(run: Run, place: Path, verb: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(place)
    if verb.startswith("job"):
        assert run("embed", "-m", "minilm", "-i", "texts.txt", "-o", "vectors/").code == 0
    if verb == "search":
        assert run(*shlex.split(EXAMPLES["index"][0])).code == 0
    for line in EXAMPLES[verb]:
        for output in re.findall(r"-o (\S+[^/\s])(?!\S)", line):
            Path(output).unlink(missing_ok=True)
        ended = run(*shlex.split(line))
        assert ended.code == 0, f"afterword {line}: {ended.err}"
