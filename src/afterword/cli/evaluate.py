"""``afterword evaluate``: score encoders on tasks."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as o
from .console import REJECTED, say
from .inputs import open_reader
from .model import ModelChoice, check_device, title_of

if TYPE_CHECKING:
    from ..post import Post
    from ..tasks.candidates import Candidate, Fitting
    from ..tasks.runner import Evaluation, Job
    from ..tasks.task import Task

Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks", metavar="TASKS",
        help="Tasks to run, separated by commas: groups or names (see --list), or .jsonl, .csv or .parquet files of "
        "scored pairs. NAME:option=value sets an option of a task. May be given several times.",
    ),
]  # fmt: skip
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder of the data sets, laid out as docs/evaluate.md describes; or hub, to download them.",
    ),
]
Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder for the results. Tasks with results are skipped.")
]
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
        "sentences, without their labels.",
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
    out: Out = Path("results"),
    seeds: Seeds = "0",
    name: Name = None,
    list_tasks: Annotated[bool, typer.Option("--list", help="List the tasks and end.")] = False,
    max_length: o.MaxLength = None,
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    products: o.Products = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    progress: o.Progress = None,
) -> int:
    """Evaluate a model with several methods on tasks.

    Results are written to OUT/MODEL/METHOD/TASK.json, in mteb's format, and to tables. A task that has results is
    skipped. If a task cannot be run, the others continue, and the exit code is 1.
    """
    if list_tasks:
        typer.echo(listed())
        return 0
    chosen = str(sentence_transformer or model or "")
    if not chosen or data is None or not tasks:
        missing = "--model" if not chosen else "--data" if data is None else "--tasks"
        raise typer.BadParameter("is needed, unless --list is given", param_hint=missing)
    if sentence_transformer and (model or method):
        raise typer.BadParameter("cannot be used with --model or --method", param_hint="--sentence-transformer")
    from ..post import parse_post
    from ..tasks.candidates import file_name
    from ..tasks.runner import Evaluation
    from .evaluation_progress import Shown

    jobs, posts = read_jobs(tasks, data), {spec: parse_post(spec) for spec in post or ["none"]}
    title, fitting = name or title_of(chosen), read_fit(fit)
    out.mkdir(parents=True, exist_ok=True)
    if sentence_transformer:
        members = sentence_transformers_candidates(sentence_transformer, device, posts, out)
    else:
        choice = ModelChoice(chosen, device, dtype, max_length, revision, trust_remote_code, products)
        members = afterword_candidates(choice, method or [], posts, out, fitting, batch_tokens)
    with Shown(progress) as shown:
        evaluation = Evaluation(members, out / file_name(title), shown, {"model": title}, read_seeds(seeds), fitting)
        evaluation.run(jobs)
    return reported(evaluation, out)


def listed() -> str:
    """The list of all tasks, by group."""
    from ..tasks.catalogue import groups, local_tasks

    every = [*local_tasks(), *(mteb_tasks() if find_spec("mteb") else ())]
    return "\n".join(
        textwrap.fill(
            " ".join(t.name for t in members), 110, initial_indent=f"{group:<18} ", subsequent_indent=" " * 19
        )
        for group, members in groups(every).items()
    )


def mteb_tasks() -> tuple[Task, ...]:
    """The tasks that mteb's own classes score; mteb is slow to import."""
    from ..adapters.mteb_tasks import TASKS

    return TASKS


def read_jobs(specs: Sequence[str], where: str) -> list[Job]:
    """The tasks that ``--tasks`` names, with the folder of their data.

    Raises:
        InputError: a task is unknown.
        MissingExtra: a task needs mteb.
        MissingDataset: there is no such folder.
    """
    from ..tasks.catalogue import jobs, local_tasks
    from ..tasks.hub import source

    return jobs(specs, source(where), local_tasks(), mteb_tasks)


def afterword_candidates(
    choice: ModelChoice,
    specs: Sequence[str],
    posts: Mapping[str, tuple[Post, ...]],
    out: Path,
    fitting: Fitting | None,
    batch_tokens: int | None,
) -> list[Candidate]:
    """The candidates for a model that Afterword runs: each method with each list of steps."""
    from ..methods import classical
    from ..methods.serialize import parse_method
    from ..tasks.candidates import candidates

    methods = {spelling(spec): parse_method(spec) for spec in specs}
    if len(methods) < len(specs):
        raise typer.BadParameter("two methods would have the same results folder", param_hint="--method")
    encoder = choice.load(next(iter(methods.values()), None))
    own = "classical" if encoder.method == classical() else encoder.method.name.replace(" ", "-")
    methods = methods or {own: encoder.method}
    return candidates(encoder, methods, posts, out, {"batch_tokens": batch_tokens}, fitting)


def sentence_transformers_candidates(
    folder: Path, device: str | None, posts: Mapping[str, tuple[Post, ...]], out: Path
) -> list[Candidate]:
    """The candidates for a model that sentence-transformers runs: one for each list of steps."""
    from ..adapters.sentence_transformers_model import SentenceTransformerModel
    from ..tasks.candidates import other

    check_device(device)
    return other(SentenceTransformerModel(folder, device), "sentence-transformers", posts, out)


def spelling(spec: str) -> str:
    """The name of a method in results.

    >>> spelling("echo:copies=3"), spelling("@mine/best.json"), spelling("@mine/methods.py:late")
    ('echo:copies=3', 'best', 'methods:late')
    """
    if not spec.startswith("@"):
        return spec
    file, _, name = spec[1:].rpartition(".py:")
    return f"{Path(file).name}:{name}" if file else Path(spec[1:]).stem


def read_fit(fit: str | None) -> Fitting | None:
    """The texts that ``--fit`` names.

    Raises:
        DataError: the file cannot be read.
    """
    from ..errors import DataError
    from ..tasks.candidates import Fitting

    if fit is None or fit == "target":
        return None if fit is None else Fitting()
    reader = open_reader(None, Path(fit), None, None)
    values = [(record.fields or {}).get(reader.field) for record in reader]
    texts = [text for text in values if isinstance(text, str) and text.strip()]
    if not texts:
        raise DataError(f"{fit} holds no texts to fit on")
    return Fitting.on(texts)


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
    from ..files.atomic import atomic_file
    from ..tasks.report import Row, as_csv, markdown, named, read_results, tables

    by_name: dict[str, dict[str, Any]] = {}
    for (name, task), result in evaluation.results.items():
        by_name.setdefault(name, {})[task] = result
    if by_name:
        typer.echo(markdown(tables([Row(name, results) for name, results in by_name.items()])), nl=False)
        everything = named(read_results(out))
        for file_of, written in {"results.md": markdown(tables(everything)), "results.csv": as_csv(everything)}.items():
            with atomic_file(out / file_of) as file:
                file.write(written.encode())
    if evaluation.failures:
        say(f"{len(evaluation.failures)} could not be run; the rest is in {out}")
    return REJECTED if evaluation.failures else 0
