"""Write docs/models.md: what each type of model gives, measured against transformers alone.

python scripts/generate_models_table.py                   every type that transformers knows: `make models`
python scripts/generate_models_table.py --kinds llama,t5  these types; the others stay as docs/models.json has them
python scripts/generate_models_table.py --page [--check]  the page anew from docs/models.json; or whether it is that

A run that was broken off goes on where it was: what it has judged lies in build/models, under a name that changes
with the package's and the judge's code. --fresh begins anew. Each type runs in a process of its own, for two minutes
at most, so that a crash of one does not end the run. POSIX only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE, TABLE = ROOT / "docs" / "models.md", ROOT / "docs" / "models.json"
SECONDS, MEMORY = 120, 12 << 30
FAILED = "the judge failed"
PAPERS = {"reba": "ReBA", "ditto": "Ditto", "bellm": "BeLLM", "every": "every method"}
WAYS = {"flat": "exact, flat", "stacked": "exact, stacked", "eager": "exact, own attention"}
SHORT = {
    "shows no attention": "no attention to read",
    "runs with its own": "its layers cannot be made bidirectional",
    "is an encoder and a decoder": "an encoder and a decoder",
}
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def families(methods: Iterable[str]) -> str:
    """The methods by the names of the papers, each once."""
    first = [m.split(maxsplit=1)[0] for m in methods]
    return ", ".join(dict.fromkeys(PAPERS.get(f, f) for f in first))


def sort_of(row: dict[str, Any]) -> str:
    """What a verdict says: "exact", "other", "refused", "wrong" or "left out"."""
    if row["left_out"]:
        return "left out"
    if any(not d <= max(1e-5, row["rounding"].get(name, 0.0)) for name, d in row["worst"].items()):
        return "wrong"
    if not row["worst"]:
        return "refused"
    return "other" if row["way"] == "eager" else "exact"


def line(row: dict[str, Any]) -> str:
    """One line of the table."""
    told: dict[str, list[str]] = {}
    for what, prefix in (("refused", ""), ("unjudged", "not judged: ")):
        for method, reason in row[what].items():
            said = next((short for mark, short in SHORT.items() if mark in reason), reason)
            told.setdefault(prefix + said.replace("|", "/"), []).append(method)
    worst = f"{max(row['worst'].values()):.0e}" if row["worst"] else ""
    how = {"wrong": "**wrong**", "refused": "refused"}.get(sort_of(row)) or WAYS[row["way"]]
    rest = "; ".join(f"{families(methods)}: {reason}" for reason, methods in told.items())
    return f"| {row['kind']} | {how} | {families(row['worst'])} | {worst} | {rest} |\n"


def page(table: dict[str, Any]) -> str:
    """The page."""
    rows = table["types"]
    count = {
        sort: [r for r in rows if sort_of(r) == sort] for sort in ("exact", "other", "refused", "wrong", "left out")
    }
    judged = [r for r in rows if not r["left_out"]]
    left: dict[str, list[str]] = {}
    for row in count["left out"]:
        left.setdefault(row["left_out"], []).append(row["kind"])
    return "".join([
        HEAD.format(
            transformers=table["transformers"],
            types=len(judged),
            seen=len(rows),
            known=table["known"],
            **{sort: len(found) for sort, found in count.items() if sort != "left out"},
        ),
        "| type | how it runs | exact methods | difference | refused, or not judged |\n|---|---|---|---|---|\n",
        *(line(r) for r in judged),
        TAIL.format(left_out=len(count["left out"])),
        *(f"- {reason} ({len(kinds)}): {', '.join(kinds)}\n" for reason, kinds in by_size(left)),
    ])  # fmt: skip


def by_size(groups: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
    """The largest group first."""
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))


HEAD = """# Models

Written by `make models` from models of {types} types of transformers {transformers}; [models.json](models.json) has the
figures. {seen} of the {known} types and variants ("llama, dynamic") that transformers knows are looked at here.

| | types |
|---|---|
| exact | {exact} |
| exact by another way | {other} |
| refused, with the reason | {refused} |
| wrong | {wrong} |

Any model that `AutoModel` loads is checked when it is loaded: a few texts that share a batch must come out as the
model's own eager attention gives them for each text alone, within 1e-4 of the largest value. Three ways of running are
tried, the fastest first:

- **exact, flat**: all texts laid end to end in one sequence, without padding.
- **exact, stacked**: texts of one length at a time, through our attention function.
- **exact, own attention**: another way. Texts of one length at a time, through the model's own attention. ReBA and
  Ditto read the matrices that the model hands out, which takes the memory of all of them.

A model that none of them reproduces is refused with the reasons. A type that is not named here needs no code: load
it, and `afterword inspect` says which way it takes.

How it was judged: a random model of four layers of each type; ten texts of 1 to 710 tokens in one batch (in two copies
or in a template up to 300), across windows, one that holds and one that spells every special token; classical (mean,
last, cls, first and last layer), Echo, ReBA (last and mean), Ditto, prompts and BeLLM (one and two layers). The judge
is transformers alone: the same model with its eager attention in float32, one text at a time, each method's formula
worked out of its hidden states and attention matrices. The difference is the worst of any method, relative to the
vector's largest component; 1e-7 is float32's last bit, and above 1e-5 a method counts as wrong, unless the model's own
eager attention in float32 is no nearer to float64 than that. A mask that hides one
token, positions that are shifted by one and a scale that is off by 2 % are planted in a test, and each is found.

"""
TAIL = """
Rotary frequencies of the types `longrope` (Phi 3) and `dynamic` depend on the longest text of a forward: texts on both
sides of the limit never share one. Sliding windows, chunks, softcaps and sinks are the models' own.

## Left out

{left_out} types are not judged:

"""


@dataclass
class Work:
    """A type that is being judged."""

    kind: str
    process: Any
    since: float


def verdict_of(kind: str) -> dict[str, Any]:
    """Build, load and judge one type; whatever goes wrong is part of the answer."""
    from tests.judge import Verdict, judge
    from tests.zoo import LeftOut, first_line, write

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return asdict(judge(kind, write(kind, Path(folder) / "model")))
        except LeftOut as e:
            return asdict(Verdict(kind, left_out=str(e)))
        except Exception as e:
            return asdict(Verdict(kind, left_out=f"{FAILED}: {type(e).__name__}: {first_line(e)}"))


def _child(kind: str, answer: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.nice(5)
    answer.send(verdict_of(kind))


def run(kinds: Sequence[str], known: Path, workers: int) -> Iterable[dict[str, Any]]:
    """Judge every type that is not known yet, several at a time, each in a process of its own."""
    found = (
        {row["kind"]: row for row in map(json.loads, known.read_text("utf-8").splitlines())} if known.exists() else {}
    )
    yield from (found[kind] for kind in kinds if kind in found)
    todo, live = [kind for kind in kinds if kind not in found], dict[Connection, Work]()
    context = multiprocessing.get_context("fork")
    known.parent.mkdir(parents=True, exist_ok=True)
    with known.open("a", encoding="utf-8") as notes:
        while todo or live:
            while todo and len(live) < workers:
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(todo[0], theirs))
                process.start()
                theirs.close()
                live[ours] = Work(todo.pop(0), process, time.monotonic())
            for row in _finished(live):
                if not row["left_out"].startswith(FAILED):  # it may do better another time
                    notes.write(json.dumps(row) + "\n")
                    notes.flush()
                print(f"{len(found) + 1:4d} {row['kind']}: {sort_of(row)}", flush=True)
                found[row["kind"]] = row
                yield row


def _finished(live: dict[Connection, Work]) -> Iterable[dict[str, Any]]:
    ready = wait(list(live), timeout=1.0)
    for pipe, work in list(live.items()):
        late = time.monotonic() - work.since > SECONDS
        if pipe not in ready and not late:
            continue
        try:
            if pipe not in ready:
                raise TimeoutError(f"took over {SECONDS} s")
            row = pipe.recv()
        except (EOFError, TimeoutError) as e:
            work.process.kill()
            row = {"kind": work.kind, "way": "", "worst": {}, "rounding": {}, "refused": {}, "possible": [],
                   "unjudged": {}, "left_out": str(e) or "its process died"}  # fmt: skip
        work.process.join()
        del live[pipe]
        yield row


def digest() -> str:
    """Of all code that a verdict depends on."""
    import transformers

    files = [*sorted((ROOT / "src/afterword").glob("*.py")), ROOT / "tests/zoo.py", ROOT / "tests/judge.py"]
    text = b"".join(f.read_bytes() for f in files) + transformers.__version__.encode()
    return hashlib.sha256(text).hexdigest()[:12]


def prepare() -> tuple[str, ...]:
    """Load once what every process needs, before the processes are made; the types that there are."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")
    import torch
    from tests import judge, zoo  # noqa: F401 (the judge is loaded for the processes)

    torch.set_num_threads(1)  # two threads that wait for each other cost more than they gain here
    zoo.tiny_model("llama")
    return zoo.KINDS


def main(arguments: Sequence[str]) -> int:
    """Judge, and write the page; 1 where something is wrong or the page is not what it would be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", help="these types only, with commas; a variant's comma is written as '+'")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    if not (given.page or given.check):
        kinds = prepare()
        chosen = [k.replace("+", ",") for k in given.kinds.split(",")] if given.kinds else list(kinds)
        known = ROOT / "build" / "models" / f"{digest()}.jsonl"
        if given.fresh:
            known.unlink(missing_ok=True)
        write({row["kind"]: row for row in run(chosen, known, given.workers)}, whole=not given.kinds)
    table = json.loads(TABLE.read_text("utf-8"))
    made = page(table)
    if given.check:
        same = PAGE.exists() and PAGE.read_text("utf-8") == made
        print(f"{PAGE.relative_to(ROOT)} is {'what' if same else 'not what'} docs/models.json gives")
        return 0 if same else 1
    PAGE.write_text(made, "utf-8")
    return int(any(sort_of(row) == "wrong" for row in table["types"]))


def write(found: dict[str, dict[str, Any]], *, whole: bool) -> None:
    """Put verdicts into docs/models.json, one type a line."""
    import transformers
    from tests.zoo import KINDS

    old = [] if whole or not TABLE.exists() else json.loads(TABLE.read_text("utf-8"))["types"]
    rows = {**{row["kind"]: row for row in old}, **found}
    lines = ",\n".join(json.dumps(_rounded(rows[kind])) for kind in sorted(rows))
    TABLE.write_text(
        f'{{"transformers": "{transformers.__version__}", "known": {len(KINDS)}, "types": [\n{lines}\n]}}\n', "utf-8"
    )


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    parts = {part: {name: float(f"{d:.0e}") for name, d in row[part].items()} for part in ("worst", "rounding")}
    return {**row, **parts}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
