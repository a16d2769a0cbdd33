"""The tables of docs/results.md: run the commands that have no results yet, and write the tables.

    python recipes/results.py --data data --out runs/results --page docs/results.md

Finished scores are kept, so a stopped run continues with the same command. --list prints the commands, --only NAME runs
and writes one table, and --no-run writes the tables from the results that exist: rows without results are left out.
"""

from __future__ import annotations

import argparse
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from afterword.tasks.results import Result, aligned, read_results
from afterword.tasks.scores import published_mean

STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
CHINESE = ("STSB-zh",)
QUESTIONS = ("SLPWC", "WSD", "SLPWC:decision=cosine")
TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
DECODERS, ENCODERS = ("smollm2", "gemma3"), ("minilm", "mpnet")
MODELS = (*DECODERS, *ENCODERS)

REPEATED = (
    "classical", "classical:states=first_last", "classical:states=static", "classical:pool=last",
    "classical:pool=weighted", "classical:states=values:all", "classical:states=attention:all", "echo",
    "echo:pool=last",
    "reba:copies=1,pool=mean", "reba:copies=2,pool=mean", "reba:copies=2", "reba:variant=released,pool=mean",
    "reba:variant=released",
)  # fmt: skip
"""Methods without a template: on a decoder all of them share one forward pass."""
MIDDLE = {"smollm2": "layer:16", "gemma3": "layer:5"}
ANSWERED = (
    "prompt:template=eol", "prompt:template=eol,pool=mean", "prompt:template=eol,states=layer:-2",
    "prompt:variant=released,states=attention:all",
)  # fmt: skip
TURNING = {"smollm2": 29, "gemma3": 13}
EVERY = {"smollm2": ("bellm:last=30", "bellm:last=30,template=eol,pool=last"), "gemma3": ("bellm:last=18",)}
MORE = (
    "echo:copies=3", "reba:copies=3,pool=mean", "reba:attention=last_layer,pool=mean", "reba:pool=mean,triangle=full",
    "prompt:template=cot", "prompt:template=ke", "ensemble:ck", "token_prepending", "bellm:last=1",
)  # fmt: skip
ENCODED = (
    "classical", "classical:pool=cls", "classical:states=first_last", "classical:states=static", "ditto",
    "ditto:states=last", "echo", "reba:copies=1,pool=mean", "classical:pool=weighted",
)  # fmt: skip
ENCODED_BY_OURS = ("reba:copies=2,pool=mean", "classical:states=values:all", "classical:states=attention:all")
"""Methods that mpnet, which runs its own attention, lacks or is slow at."""
WORDS = ("classical", "echo", "reba", "reba:normalise=token", "reba:variant=released")
STEPS = ("none", "centre", "remove_top", "whiten", "flow")


@dataclass(frozen=True)
class Run:
    """One command of `afterword evaluate`; the methods of a command share forward passes where they can."""

    model: str
    tasks: str
    methods: tuple[str, ...]
    posts: tuple[str, ...] = ()
    fit: str | None = None

    def command(self, data: Path, out: Path) -> list[str]:
        """The words after `afterword`."""
        options = [word for method in self.methods for word in ("--method", method)]
        options += [word for post in self.posts for word in ("--post", post)]
        options += ["--fit", self.fit] if self.fit else []
        folders = ["--name", self.model, "--data", str(data), "--out", str(out), "--no-progress"]
        return ["evaluate", "-m", self.model, *folders, "--tasks", self.tasks, *options]

    def rows(self) -> Iterator[str]:
        """The names of its encoders."""
        for method in self.methods:
            yield from (method if post == "none" else f"{method}+{post}" for post in self.posts or ("none",))


@dataclass(frozen=True)
class Table:
    """A table of the page: a row per method with a column per model, or a row per encoder with a column per task."""

    tasks: tuple[str, ...]
    runs: tuple[Run, ...]
    by_model: bool = False


def _decoder(model: str, tasks: str) -> tuple[Run, ...]:
    middle = (f"classical:states={MIDDLE[model]}", f"classical:skip_first=true,states={MIDDLE[model]}")
    turning = f"prompt:template=bellm,states=normed:{TURNING[model]}"
    return (
        Run(model, tasks, (*REPEATED, *middle)),
        Run(model, tasks, ANSWERED),
        Run(model, tasks, ("prompt:template=bellm", "prompt:template=bellm,pool=mean", turning)),
        Run(model, tasks, ("classical",), STEPS, "target"),
        Run(model, tasks, ("sif",), ("none", "remove_top:k=1,centre=false"), "target"),
    )


TABLES = {
    "sentences": Table(
        STS,
        (*_decoder("smollm2", "sts"), Run("minilm", "sts", ENCODED), Run("minilm", "sts", ENCODED_BY_OURS)),
        by_model=True,
    ),
    "stsb": Table(
        ("STSB",),
        (*(run for model in DECODERS for run in (*_decoder(model, "STSB"), Run(model, "STSB", (*MORE, *EVERY[model])))),
         Run("smollm2", "STSB", ("classical",), ("embed_filter",)),
         Run("smollm2", "STSB", ("ensemble:metaeol",)),
         *(Run(model, "STSB", ENCODED) for model in ENCODERS), Run("minilm", "STSB", ENCODED_BY_OURS)),
        by_model=True,
    ),
    "words": Table(QUESTIONS, (Run("gemma3", ",".join(QUESTIONS), WORDS),)),
    "senses": Table(("CoarseWSD20",), tuple(Run(m, "CoarseWSD20", WORDS) for m in (*DECODERS, "minilm")), True),
    "chinese": Table(
        CHINESE,
        (Run("gemma3", ",".join(CHINESE), ("classical", "classical:pool=last", "echo", "reba:copies=2,pool=mean",
                                           "reba:copies=2", "prompt:template=eol")),),
    ),
    "transfer": Table(TRANSFER, (Run("minilm", "transfer", ("classical",)),)),
}  # fmt: skip


def half_interval(result: Result) -> float:
    """Half of the 95% interval of a score, x 100.

    For Spearman's correlation Bonett and Wright's standard error (2000), and for an accuracy the binomial one.
    """
    r, n = result.main, size(result)
    if "similarity" in result.items:
        return 196 * (1 - r**2) * math.sqrt((1 + r**2 / 2) / (n - 3))
    return 196 * math.sqrt(r * (1 - r) / n)


def size(result: Result) -> int:
    """The number of pairs or questions of a task."""
    return len(next(iter(result.items.values()))) if result.items else 0


def cell(results: Sequence[Result | None]) -> str:
    """A score, or the mean over tasks, with half of its interval; empty if one is missing."""
    found = [r for r in results if r is not None]
    if len(found) < len(results):
        return ""
    half = math.sqrt(sum(half_interval(r) ** 2 for r in found if size(r))) / len(found)
    mean = published_mean([100 * r.main for r in found]) if len(found) > 1 else 100 * found[0].main
    return f"{mean:.1f} ± {half:.1f}" if half else f"{mean:.1f}"


def written(table: Table, results: dict[tuple[str, str], dict[str, Result]], before: str = "") -> str:
    """A table as Markdown, with the rows that have results; empty if there are none.

    A cell without results keeps what the table had before, so that a page can be filled run by run.
    """
    kept = cells_of(before)
    heads = [m for m in MODELS if any(run.model == m for run in table.runs)] if table.by_model else list(table.tasks)
    rows: dict[str, dict[str, str]] = {}
    for run in table.runs:
        for name in run.rows():
            of_task = results.get((run.model, name), {})
            if table.by_model:
                found = {run.model: cell([of_task.get(task) for task in table.tasks])}
            else:
                found, name = {task: cell([of_task.get(task)]) for task in table.tasks}, f"{run.model}: {name}"
            for head, text in found.items():
                rows.setdefault(name, {})[head] = text or kept.get((name, head), "")
    lines = [[name, *(row.get(head, "") for head in heads)] for name, row in rows.items() if any(row.values())]
    return aligned([["", *heads], *lines]) if lines else ""


def cells_of(table: str) -> dict[tuple[str, str], str]:
    """The cells of a Markdown table, by the names of row and column."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]
    return {(row[0], head): cell for row in lines[2:] for head, cell in zip(lines[0], row, strict=True)}


def between_marks(page: str, name: str) -> re.Match[str]:
    """The place of a table in a page: its first mark, the table, and the last mark."""
    place = re.search(rf"(<!-- table: {re.escape(name)} -->\n)(.*?)(<!-- end -->)", page, re.S)
    if place is None:
        raise SystemExit(f"the page has no place for the table {name!r}")
    return place


def replaced(page: str, name: str, table: str) -> str:
    """The page with the table between its marks replaced."""
    place = between_marks(page, name)
    return f"{page[: place.start()]}{place[1]}\n{table}\n\n{place[3]}{page[place.end() :]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    parser.add_argument("--page", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--only", action="append", choices=TABLES)
    parser.add_argument("--list", action="store_true", help="print the commands and exit")
    parser.add_argument("--no-run", action="store_true", help="write the tables from existing results")
    args = parser.parse_args()
    names = args.only or list(TABLES)
    for run in (run for name in names for run in TABLES[name].runs if not args.no_run):
        command = run.command(args.data, args.out)
        print("afterword", shlex.join(command), flush=True)
        if not args.list:
            subprocess.run([sys.executable, "-m", "afterword", *command], check=False)
    if args.list:
        return
    results = {(row.model, row.name): dict(row.results) for row in read_results(args.out)}
    page = args.page.read_text(encoding="utf-8")
    for name in names:
        if table := written(TABLES[name], results, between_marks(page, name)[2]):
            page = replaced(page, name, table)
    args.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
