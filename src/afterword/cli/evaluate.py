"""``afterword evaluate``: score encoders on tasks."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import plural
from . import options as o
from .console import REJECTED, ending, interruptible, say
from .fitting import check_fit, fit_texts
from .model import ModelChoice, check_device, title_of
from .tables import laid_out, terminal

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..methods import AnyMethod
    from ..post import Post
    from ..tasks.candidates import Candidate
    from ..tasks.runner import Evaluation
    from ..tasks.task import Task, TaskRun

Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks", metavar="TASKS",
        help="Tasks to run, separated by commas: groups or names (see --list), or .jsonl, .csv or .parquet files of "
        "scored pairs. cmteb is C-MTEB on mteb's own data, mteb:NAME any task of mteb. NAME:option=value sets an "
        "option of a task. May be given several times.",
    ),
]  # fmt: skip
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder of the data sets; or hub, to download them. The error about a missing file says what goes where.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Folder for the results. Tasks with results are skipped. Default: results."
    ),
]
OUT = Path("results")
Posts = Annotated[
    list[str] | None,
    typer.Option(
        "--post", metavar="STEPS",
        help="Post-processing steps to apply to every method's vectors: none, normalise, "
        "whiten:dimensions=256+normalise, ... May be given several times. Default: none.",
    ),
]  # fmt: skip
Fit = Annotated[
    str | None,
    typer.Option(
        "--fit", metavar="FILE",
        help="Fit whitening, TF-IDF and other fitted parts on the texts of this file; or target, for each task's own "
        "sentences, each once, without their labels.",
    ),
]  # fmt: skip
Seeds = Annotated[
    str,
    typer.Option(
        "--seeds",
        metavar="N,N",
        help="Random seeds of folds, classifiers and clusterings. With several, results are mean ± deviation.",
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Name of the model in results. Default: its folder's name.")
]


def evaluate(
    model: Annotated[
        str | None, typer.Option("-m", "--model", metavar="MODEL", help="A folder, or a model on the Hugging Face Hub.")
    ] = None,
    sentence_transformer: Annotated[
        Path | None,
        typer.Option(
            "--sentence-transformer",
            metavar="FOLDER",
            help="Instead of --model: a folder whose model sentence-transformers runs itself, such as GloVe.",
        ),
    ] = None,
    method: o.Methods = None,
    post: Posts = None,
    fit: Fit = None,
    tasks: Tasks = None,
    data: Data = None,
    out: Out = None,
    seeds: Seeds = "0",
    name: Name = None,
    list_tasks: Annotated[bool, typer.Option("--list", help="List the tasks and end.")] = False,
    max_length: o.MaxLength = None,
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    progress: o.Progress = None,
) -> int:
    """Evaluate a model with several methods on tasks.

    Results are written to OUT/MODEL/METHOD/TASK.json, in mteb's format, and to tables. A task that has results is
    skipped. If a task cannot be run, the others continue, and the exit code is 1.

    Examples:
        afterword evaluate --list
        afterword evaluate -m minilm --data . --tasks pairs.jsonl --out results
    """
    if list_tasks:
        typer.echo(listed())
        return 0
    chosen = str(sentence_transformer or model or "")
    if not chosen or not tasks:
        missing = "--tasks" if chosen else "--model"
        raise typer.BadParameter("is needed, unless --list is given", param_hint=missing)
    choice = ModelChoice(chosen, device, dtype, max_length, revision, trust_remote_code)
    if sentence_transformer and (method or batch_tokens or choice != ModelChoice(chosen, device) or model):
        raise typer.BadParameter(
            "of the options for a model and its methods, only --device goes with it: that library runs the model",
            param_hint="--sentence-transformer",
        )
    methods, numbers, texts = named_methods(method or []), read_seeds(seeds), read_fit(fit)
    jobs, unnamed, out = read_jobs(tasks, data), out is None, out or OUT
    from ..post import parse_post
    from ..tasks.candidates import Fitting, candidates, file_name
    from ..tasks.runner import Evaluation
    from .evaluation_progress import Shown

    posts = {spec: parse_post(spec) for spec in post or ["none"]}
    check_fit(fit, methods.values(), [step for steps in posts.values() for step in steps])
    title, fitting = name or title_of(chosen), None if texts is None else Fitting.on(texts) if texts else Fitting()
    if sentence_transformer:
        out.mkdir(parents=True, exist_ok=True)
        members, fits = sentence_transformers_candidates(sentence_transformer, device, posts), methods
    else:
        encoder, fits = load_fitting(choice, methods)
        out.mkdir(parents=True, exist_ok=True)
        members = candidates(encoder, fits, posts, {"batch_tokens": batch_tokens}, fitting)
    with Shown(progress) as shown:
        evaluation = Evaluation(members, out / file_name(title), shown, {"model": title}, numbers, fitting)
        evaluation.check_earlier(jobs)
        with interruptible(lambda: kept(evaluation, out)):
            evaluation.run(jobs)
    if unnamed and evaluation.results:
        say(f"results are kept in the folder {out}; --out DIR names another")
    return max(reported(evaluation, out), sent_in(evaluation, jobs)) or (REJECTED if len(fits) < len(methods) else 0)


def sent_in(evaluation: Evaluation, jobs: Sequence[TaskRun]) -> int:
    """Write the similarities of a test split without labels beside its results, in the form that its authors take.

    Returns:
        The exit code.
    """
    from ..errors import DataError
    from ..files.atomic import atomic_file
    from ..tasks.pairs import submission
    from ..tasks.report import SUBMISSION

    code = 0
    job_of = {job.name: job for job in jobs}
    for (name, task), result in evaluation.results.items():
        if "predicted" not in result.items:
            continue
        path = evaluation.path(name, job_of[task]).with_suffix(SUBMISSION)
        try:
            text = submission(result.items["predicted"])
        except DataError as e:
            say(f"{task}: {name}: {ending(e)[0]}")
            code = REJECTED
            continue
        with atomic_file(path) as file:
            file.write(text.encode())
        say(f"{task}: {name}: {path} is to be sent to its authors")
    return code


def kept(evaluation: Evaluation, out: Path) -> str:
    """What is kept of a run that ends now, and how it goes on."""
    if not evaluation.results:
        return "no task was finished, and nothing is kept"
    return f"{plural(len(evaluation.results), 'result')} kept in {out}; the same command goes on from there"


def listed() -> str:
    """The list of all tasks, by group."""
    from ..tasks.catalogue import MTEB, groups, local_tasks

    every = {group: " ".join(t.name for t in members) for group, members in groups(local_tasks()).items()}
    every |= MTEB if find_spec("mteb") else {}
    return "\n".join(
        textwrap.fill(names, 110, initial_indent=f"{group:<18} ", subsequent_indent=" " * 19)
        for group, names in every.items()
    )


def mteb_tasks(name: str) -> tuple[Task, ...]:
    """The tasks that mteb's own classes score, on local files and on mteb's own data; or the one named "mteb:NAME"."""
    from ..adapters.mteb_official import known_by

    return known_by(name)


def read_jobs(specs: Sequence[str], where: str | None) -> list[TaskRun]:
    """The tasks that ``--tasks`` names, with the folder of their data, which files of scored pairs do without.

    Raises:
        InputError: a task is unknown.
        MissingExtra: a task needs mteb.
        MissingDataset: there is no such folder.
        typer.BadParameter: no folder is given, and a task needs one.
    """
    from ..tasks.catalogue import jobs, local_tasks
    from ..tasks.rows import Folder, source

    none = Folder(Path("no folder is given"))
    found = jobs(specs, none if where is None else source(where), local_tasks(), mteb_tasks)
    if any(job.source == none for job in found):
        raise typer.BadParameter(
            "is needed: a folder of data sets, laid out as docs/evaluate.md describes, or hub to download them",
            param_hint="--data",
        )
    return found


def named_methods(specs: Sequence[str]) -> dict[str, AnyMethod]:
    """Methods by their names in results.

    Raises:
        MethodError: a method is unknown.
        typer.BadParameter: two would have the same name.
    """
    from ..methods.serialize import parse_method

    by_name: dict[str, str] = {}
    for spec in specs:
        other = by_name.setdefault(spelling(spec), spec)
        if other != spec:
            raise typer.BadParameter(
                f"{other} and {spec} would both be {spelling(spec)!r} in results: rename one file, or run them with "
                "different --out",
                param_hint="--method",
            )
    return {name: parse_method(spec) for name, spec in by_name.items()}


def load_fitting(choice: ModelChoice, methods: Mapping[str, AnyMethod]) -> tuple[Encoder, dict[str, AnyMethod]]:
    """The encoder, and the methods that fit its model; the others are reported. Without any, the encoder's own.

    Raises:
        MethodError: no method fits.
    """
    from ..errors import AfterwordError
    from ..methods import classical

    encoder = choice.load(classical() if methods else None)
    if not methods:
        own = "classical" if encoder.method == classical() else encoder.method.name.replace(" ", "-")
        return encoder, {own: encoder.method}
    fits: dict[str, AnyMethod] = {}
    for name, method in methods.items():
        try:
            fits[name] = replace(encoder, method=method).method
        except AfterwordError as e:
            if name == list(methods)[-1] and not fits:
                raise
            say(f"{name}: {ending(e)[0]}; the other methods are run")
    return encoder, fits


def sentence_transformers_candidates(
    folder: Path, device: str | None, posts: Mapping[str, tuple[Post, ...]]
) -> list[Candidate]:
    """The candidates for a model that sentence-transformers runs: one for each list of steps."""
    from ..adapters.sentence_transformers_model import SentenceTransformerModel
    from ..tasks.candidates import other

    check_device(device)
    return other(SentenceTransformerModel(folder, device), "sentence-transformers", posts)


def spelling(spec: str) -> str:
    """The name of a method in results.

    >>> spelling("echo:copies=3"), spelling("@mine/best.json"), spelling("@mine/methods.py:late")
    ('echo:copies=3', 'best', 'methods:late')
    """
    if not spec.startswith("@"):
        return spec
    file, _, name = spec[1:].rpartition(".py:")
    return f"{Path(file).name}:{name}" if file else Path(spec[1:]).stem


def read_fit(fit: str | None) -> list[str] | None:
    """The texts that ``--fit`` names; an empty list for each task's own, None without ``--fit``.

    Raises:
        DataError: the file cannot be read.
    """
    if fit is None or fit == "target":
        return None if fit is None else []
    return fit_texts(Path(fit))


def read_seeds(spelled: str) -> tuple[int, ...]:
    """Seeds from text, separated by commas.

    >>> read_seeds("0,1,2")
    (0, 1, 2)
    """
    parts = [part.strip() for part in spelled.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise typer.BadParameter(f"{spelled!r}: write different whole numbers, as in 0,1,2", param_hint="--seeds")
    return tuple(int(part) for part in parts)


def reported(evaluation: Evaluation, out: Path) -> int:
    """Print the results of this run, and write tables of all results in the folder.

    Returns:
        The exit code.
    """
    from ..errors import DataError
    from ..files.atomic import atomic_file
    from ..tasks.report import Row, as_csv, markdown, named, read_results, tables

    by_name: dict[str, dict[str, Any]] = {}
    for (name, task), result in evaluation.results.items():
        by_name.setdefault(name, {})[task] = result
    damaged: list[DataError] = []
    if by_name:
        here = tables([Row(name, results) for name, results in by_name.items()])
        typer.echo(markdown(here, partial(laid_out, width=terminal())), nl=False)
        everything = named(read_results(out, damaged.append))
        for file_of, written in {"results.md": markdown(tables(everything)), "results.csv": as_csv(everything)}.items():
            with atomic_file(out / file_of) as file:
                file.write(written.encode())
    for error in damaged:
        say(f"{error}; it is left out of {out / 'results.md'}")
    if evaluation.failures:
        rest = f"the rest is in {out}" if by_name else "nothing was scored"
        say(f"{len(evaluation.failures)} could not be run; {rest}")
    return REJECTED if evaluation.failures or damaged else 0
