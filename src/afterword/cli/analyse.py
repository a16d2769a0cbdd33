"""``afterword analyse``: the papers' measurements of layers and vectors. Those of attention: analyse_attention."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import one_line
from . import options as o
from .analyse_attention import attention, heads, impact
from .help import SETTINGS, Verb, Verbs, expanded
from .model import ModelChoice, members_of, read_methods
from .option_groups import Figure, Models, Run, Texts, distinct, read_input
from .progress import CountedBar
from .tables import aligned

if TYPE_CHECKING:
    from ..methods import AnyMethod
    from ..papers.gains import Gain
    from ..papers.isotropy import Isotropy
    from ..papers.turning import Curve
    from ..post import Post
    from ..tasks.pairs import ScoredPairs
    from ..text.layout import Layout
    from ..text.tokenizer import Tokenizer

analyse = typer.Typer(help="Measure a model's layers, tokens and vectors, as the papers do.", cls=Verbs, **SETTINGS)


@analyse.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def turning_point(
    model: Models,
    dev: Annotated[
        list[Path],
        typer.Option(
            "--dev", metavar="FILE", show_default=False,
            help="Development pairs with human scores: a .jsonl, .csv (both may be gzipped) or .parquet file with "
            "sentence1, sentence2 and score. May be given several times: the curve is then the mean of theirs.",
        ),
    ],
    pool: Annotated[
        list[str] | None,
        typer.Option(
            "--pool", metavar="POOL", help="Pooling: mean or last. May be given several times. Default: both."
        ),
    ] = None,
    template: Annotated[
        list[str] | None,
        typer.Option(
            "--template", metavar="TEMPLATE",
            help="A template: its name, a string with {text}, or none. May be given several times. Default: bellm and "
            "none.",
        ),
    ] = None,
    margin: Annotated[
        float, typer.Option("--margin", min=0, metavar="X", help="Scores that differ by at most X count as equal.")
    ] = 0.01,
    *, figure: Figure, run: Run,
) -> int:  # fmt: skip
    """Find the turning point: the layer after which a model's sentence vectors get worse.

    BeLLM gives the layers after it bidirectional attention. All models are drawn into one plot.

    Examples:
        afterword analyse turning-point -m afterword-mini --dev pairs.jsonl
    """
    from ..tasks.pairs import read_pairs

    figure.check()
    spellings = [(t, p) for t in template or ("bellm", "none") for p in pool or ("mean", "last")]
    names = run.names(model)
    sets = {name: read_pairs(Path(path)) for path, name in distinct(list(map(str, dev)), _stem, "--dev").items()}
    check_scores(sets)
    from ..methods import classical, one_method
    from ..methods.serialize import parse_method
    from ..papers.turning import degradation, plot

    specs = [f"bellm:last=auto,pool={p},template={_quoted(t)}" for t, p in spellings]
    methods = {
        f"{p}, {'no' if t == 'none' else t} template": one_method(parse_method(spec), "a turning point")
        for (t, p), spec in zip(spellings, specs, strict=True)
    }
    results, shown, used = [], [], []
    for name in model:
        encoder = run.load(name, classical())
        with CountedBar("turning point", "vectors") as bar:
            curves = degradation(
                encoder, sets if len(sets) > 1 else next(iter(sets.values())), methods, margin=margin,
                batch_tokens=run.batch_tokens, show_progress_bar=bar.update,
            )  # fmt: skip
        asks = [
            s.replace("auto", str(c.turning.last)) if c.turning else None for s, c in zip(specs, curves, strict=True)
        ]
        rows = [{**c.to_json(), "method": m} for c, m in zip(curves, asks, strict=True)]
        results.append({"model": name, "layers": encoder.backbone.facts.layers, "margin": margin, "curves": rows})
        used += asks
        for c in curves:
            parts = [names[name]] * (len(model) > 1) + [c.name] * (len(model) == 1 or len(methods) > 1)
            shown.append(replace(c, name=", ".join(parts)))
    mean = next(iter(sets)) if len(sets) == 1 else f"mean of {len(sets)} sets: {', '.join(sets)}"
    note = (
        f"{shown[0].pairs} pairs, {mean}; bands: 95 % intervals over resamples of the pairs; rings: turning points, "
        "grey if under half of the resamples agree"
    )
    figure.draw(partial(plot, curves=shown), "Scores by layers kept", note)
    return run.show(results if len(results) > 1 else results[0], _curves(shown, used, list(sets)))


def _curves(curves: Sequence[Curve], methods: Sequence[str | None], sets: Sequence[str]) -> Iterator[str]:
    mean = f" in {len(sets)} sets ({', '.join(sets)}; --json has the scores of each)" if len(sets) > 1 else ""
    yield f"Spearman x 100 of {curves[0].pairs} pairs{mean}, by layers kept; * is the turning point"
    rows = []
    for curve in curves:
        at = curve.turning.kept if curve.turning else None
        rows.append({"": curve.name} | {str(t): f"{100 * s:.2f}{'*' if t == at else ' '}"
                                        for t, s in enumerate(curve.scores)})  # fmt: skip
    yield from aligned(rows)
    yield ""
    for curve, method in zip(curves, methods, strict=True):
        turning = curve.turning
        if turning is None:
            yield f"{curve.name}: {curve.note}"
            continue
        layers = len(curve.scores) - 1
        what = f"falls after {turning.kept} of {layers} layers" if turning.falls else "does not fall at its end"
        yield f"{curve.name}: {what} ({turning.agreement:.0%} of resamples agree): --method {shlex.quote(method or '')}"


def _stem(path: str) -> str:
    name = Path(path).name.removesuffix(".gz")
    return name.rpartition(".")[0] or name


def _quoted(template: str) -> str:
    """A template as a value in ``--method NAME:template=...``."""
    from ..methods.prompts import TEMPLATES

    return template if template == "none" or template in TEMPLATES else json.dumps(template, ensure_ascii=False)


def check_scores(sets: Mapping[str, ScoredPairs]) -> None:
    """Refuse, before a model is loaded, pairs by file that all have one score.

    Raises:
        InputError: a file's pairs do.
    """
    from ..errors import InputError

    for file, pairs in sets.items():
        if (pairs.gold == pairs.gold[0]).all():
            same = f"all {len(pairs.gold)} pairs have the score {pairs.gold[0]:g}"
            raise InputError(f"{file}: {same}: a correlation needs different ones")


def dependency(
    model: Models,
    texts: Texts,
    method: o.Methods = None,
    pivot: Annotated[
        Literal["last", "first"] | None,
        typer.Option(
            "--pivot", metavar="TOKEN",
            help="The pivot, the token that represents a sentence: last or first. Default: last in a causal model, "
            "else first.",
        ),
    ] = None,
    *, figure: Figure, run: Run,
) -> int:  # fmt: skip
    """Measure how much each sentence's pivot token depends on its other tokens.

    It is Spearman's correlation between their hidden states, for each model with each method.

    Examples:
        afterword analyse dependency -m afterword-mini --method classical -i texts.txt
    """
    figure.check()
    read, methods = texts.read(), read_methods(method)
    from ..papers.dependency import dependency as measure
    from ..papers.dependency import plot

    results = [
        measure(encoder, read, pivot, name=name, limits=limits)
        for name, encoder, limits in run.encoders(model, methods)
    ]
    short = max(r.undefined for r in results)
    note = f"{len(read)} sentences" + f", up to {short} of one token left out" * bool(short) + "; triangles: means"
    size, title = (6.6, 1.6 + 0.5 * len(results)), "Dependency of the pivot on the other tokens"
    figure.draw(partial(plot, results=results), title, note, size=size)
    rows = []
    for r in results:
        quartiles = " ".join(f"{q:.3f}" for q in r.quartiles)
        row = {"": r.name, "pivot": r.pivot, "mean": f"{r.mean:.3f}", "quartiles": quartiles}
        rows.append(row | ({"of one token, left out": str(r.undefined)} if short else {}))
    return run.show([r.to_json() for r in results], aligned(rows))


def words(
    model: Models,
    texts: Texts,
    frequencies: Annotated[
        Path,
        typer.Option(
            "--frequencies", metavar="FILE", show_default=False,
            help="Count word frequencies in this file: lines of a word and its count, or a plain text.",
        ),
    ],
    method: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="METHOD", help="A method. May be given several times. Default: bellm."),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", min=1, metavar="N", help="Treat the N most frequent words as high-frequency words.")
    ] = 100,
    head: Annotated[
        str | None,
        typer.Option(
            "--head", metavar="MODEL", help="Use the language-modelling head of this model instead of the model's own."
        ),
    ] = None,
    show: Annotated[int, typer.Option("--show", min=0, metavar="N", help="Print the words of N texts.")] = 5,
    *, run: Run,
) -> int:  # fmt: skip
    """Print the word that the language-modelling head predicts after the last token of each text.

    Also print how often that word is not a high-frequency word (BeLLM's representative words).

    Examples:
        afterword analyse words -m afterword-mini -i texts.txt --frequencies texts.txt
    """
    from ..papers.words import read_counts, representative_words

    read, counts = texts.read(), read_counts(frequencies)
    results, lines = [], []
    for name, encoder, limits in run.encoders(model, read_methods(method or ["bellm"])):
        f = representative_words(encoder, read, counts, top=top, head=head, name=name, limits=limits)
        results.append(f.to_json())
        lines += [
            f"{f.name}: {f.share:.2%} of {len(f.words)} texts have a word that is not among the {f.top} most frequent; "
            f"{f.frequent:.2%} have one that is, {f.wordless:.2%} none",
            f"  {f.different} different words: " + ", ".join(f"{w} {n}" for w, n in f.commonest),
            *(f"  {word or '-':16} {one_line(text)}" for word, text in zip(f.words, read[:show], strict=False)),
        ]
    return run.show(results, lines)


def isotropy(
    model: Models,
    texts: Texts,
    above: Annotated[
        float,
        typer.Option(
            "--above", metavar="X", help="Pairs with a score above X are positive, as in SimCSE and Ditto: 4 of 5."
        ),
    ] = 4.0,
    method: o.Methods = None,
    post: Annotated[
        list[str] | None,
        typer.Option(
            "--post", metavar="STEPS",
            help="Post-processing steps to apply to every method's vectors: none, whiten, flow, ... May be given "
            "several times. Default: none.",
        ),
    ] = None,
    fit: Annotated[
        Path | None,
        typer.Option(
            "--fit", metavar="FILE",
            help="Fit steps and TF-IDF on the texts of this file. Default: on the texts that are measured.",
        ),
    ] = None,
    *, figure: Figure, run: Run,
) -> int:  # fmt: skip
    """Measure how evenly vectors lie in all directions (isotropy), as in Ditto's Table 5 and Figure 4.

    Average cosine and uniformity are those of all texts; alignment is that of the pairs of --pairs with a high score.
    Lower is better. For every model with each method and each --post; the plot shows alignment over uniformity.

    Examples:
        afterword analyse isotropy -m minilm --pairs pairs.jsonl
    """
    figure.check()
    if figure.plot is not None and texts.pairs is None:
        raise typer.BadParameter("it draws alignment, which needs pairs with scores: pass --pairs", param_hint="--plot")
    from ..post import parse_post
    from ..tasks.pairs import read_pairs

    read = texts.read()
    methods = dict(zip(method or (), read_methods(method).values(), strict=True))
    posts = {spec: parse_post(spec) for spec in post or ["none"]}
    if fit is not None:
        check_fit(methods, posts)
    on = read if fit is None else read_input(fit)
    from ..methods import classical
    from ..papers.isotropy import isotropy as measure
    from ..papers.isotropy import plot, positive_pairs
    from ..tasks.candidates import Fitting, candidates
    from ..tasks.vectors import CachedEmbedder

    positives = [] if texts.pairs is None else positive_pairs(read_pairs(texts.pairs, correlated=False), above)
    results: list[Isotropy] = []
    for spec, short in run.names(model).items():
        encoder = run.load(spec, next(iter(methods.values()), None))
        own = "classical" if encoder.method == classical() else encoder.method.name
        tried = methods or {own: encoder.method}
        for c in candidates(encoder, tried, posts, {"batch_tokens": run.batch_tokens}, Fitting.on(on)):
            c = c.fit(on) if c.unfitted else c
            name = " ".join([short] * (len(model) > 1) + [c.name])
            vectors = CachedEmbedder(c.embedder, c.cache, c.raw, c.post)
            results.append(measure(vectors, read, positives, name=name))
    several = f"{len(positives)} positive pair{'s' * (len(positives) > 1)}"
    counts = f"{results[0].texts} texts" + f", {several}" * bool(positives)
    note = f"{counts}; lower is better on both axes"
    figure.draw(partial(plot, results=results), "Alignment and uniformity", note)
    rows = [
        {"": r.name, "average cosine": f"{r.average_cosine:.3f}", "uniformity": f"{r.uniformity:.3f}"}
        | ({"alignment": f"{r.alignment:.3f}"} if positives else {})
        for r in results
    ]
    return run.show([r.to_json() for r in results], [counts, *aligned(rows)])


def check_fit(methods: Mapping[str, AnyMethod], posts: Mapping[str, tuple[Post, ...]]) -> None:
    """Refuse ``--fit`` where nothing is fitted.

    Raises:
        typer.BadParameter: no method and no step is.
    """
    from ..post import Unfitted

    steps = [step for steps in posts.values() for step in steps]
    fitted = any(isinstance(step, Unfitted) for step in steps)
    if not fitted and all(m.weigh.fitted for m in members_of(methods.values())):
        raise typer.BadParameter(
            "has no effect: no method (tfidf, sif, remove_biases) and no step (centre, whiten, ...) is fitted to texts",
            param_hint="--fit",
        )


def lengths(
    model: Models,
    texts: Texts,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks", metavar="TASKS",
            help="Measure the texts of these tasks, each by itself: groups or names, separated by commas; see "
            "`afterword evaluate --list`.",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="Folder of the tasks' data; or hub, to download them.")
    ] = None,
    method: o.Method = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length", min=1, metavar="N", help="Count the texts over N tokens. Default: the model's limit."
        ),
    ] = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
    *, figure: Figure,
) -> int:  # fmt: skip
    """Count the tokens of texts by a model's tokenizer, and the texts over its limit (ReBA's Figure 4).

    Special tokens, template and copies of the method count. The model's weights are not loaded. The plot shows the
    share of texts up to each length.

    Examples:
        afterword analyse lengths -m minilm -m afterword-mini -i texts.txt
    """
    figure.check()
    from ..methods import one_method
    from ..methods.serialize import parse_method

    chosen = None if method is None else one_method(parse_method(method), "the number of tokens")
    sets = task_texts(tasks, data, texts) if tasks else {"": texts.read()}
    from ..papers.lengths import lengths as measure
    from ..papers.lengths import plot

    run, results, rows = Run(revision=revision, trust_remote_code=trust_remote_code, as_json=as_json), [], []
    for spec, short in run.names(model).items():
        tokenizer, layout, limit = reading(ModelChoice(spec, None, None, None, revision, trust_remote_code))
        for name, those in sets.items():
            full = " ".join([short] * (len(model) > 1 or not name) + [name] * bool(name))
            layout = chosen.layout if chosen else layout
            r = measure(tokenizer, those, layout, limit=max_length or limit, name=full)
            results.append(r)
            half, ninety, most, longest = (str(r.quantile(share)) for share in (0.5, 0.9, 0.99, 1.0))
            rows.append({
                "": r.name, "texts": str(len(r.tokens)), "median": half, "90 %": ninety, "99 %": most,
                "longest": longest, "limit": str(r.limit or "none"), "over it": f"{100 * r.over / len(r.tokens):.2f} %",
            })  # fmt: skip
    note = "special tokens, template and copies of the method included"
    figure.draw(partial(plot, results=results), "Lengths of texts in tokens", note)
    return run.show([r.to_json() for r in results], aligned(rows))


def task_texts(tasks: Sequence[str], data: str | None, texts: Texts) -> dict[str, Sequence[str]]:
    """The texts of each task.

    Raises:
        typer.BadParameter: a file is passed too, or there is no --data.
        DataError: a task has no plain texts, or its data are missing.
    """
    if texts.input is not None or texts.pairs is not None:
        raise typer.BadParameter("pass a file or --tasks, not both", param_hint="--tasks")
    from ..adapters.mteb_official import known_by
    from ..errors import DataError
    from ..tasks.catalogue import jobs, local_tasks
    from ..tasks.rows import Folder, source

    none = Folder(Path("no folder"))
    found: dict[str, Sequence[str]] = {}
    chosen = jobs(tasks, none if data is None else source(data), local_tasks(), known_by)
    if any(job.source == none for job in chosen):
        raise typer.BadParameter("is needed: the folder of the tasks' data, or hub", param_hint="--data")
    for job in chosen:
        found[job.name] = list(dict.fromkeys(job.task.load(job.source).texts()))
        if not found[job.name]:
            raise DataError(f"{job.name} has no texts without a word or a condition: leave it out")
    return found


def reading(choice: ModelChoice) -> tuple[Tokenizer, Layout, int | None]:
    """A model's tokenizer, the layout of its saved method, and its limit of tokens; no weights are loaded."""
    from ..backbone.loading import load_tokenizer
    from ..backbone.model_source import ModelSource
    from ..encode.options import choose_prompt
    from ..files.read_encoder import read_folder
    from ..methods import one_method
    from ..text.inputs import with_prompt
    from ..text.layout import Layout

    source = choice.located()
    folder, _ = source.folder()
    if not (folder / "modules.json").exists():
        tokenizer, limit = load_tokenizer(source, choice.trust_remote_code)
        return tokenizer, Layout(), limit
    saved = read_folder(folder)
    tokenizer, limit = load_tokenizer(ModelSource(str(saved.model)).located(), choice.trust_remote_code)
    prompt = choose_prompt(saved.prompts, saved.default_prompt_name)
    layout = one_method(saved.method, "the number of tokens").layout
    return tokenizer, with_prompt(layout, prompt), saved.max_length or limit


def gains(
    model: Models,
    pairs: Annotated[
        Path,
        typer.Option(
            "--pairs", metavar="FILE", show_default=False,
            help="Rows of sentence1, sentence2, score and, if any, subset.",
        ),
    ],
    method: o.Methods = None,
    *, run: Run,
) -> int:  # fmt: skip
    """Print the gain of a second encoder over a first, by kind of sentence pair.

    Give one model and two methods, two models, or two models and two methods: the first method is then that of the
    first model. The gain is the difference of Spearman's correlations with the scores. Kinds: the subset that the
    data name, length, negation, where the texts differ, and how many words they share.

    Examples:
        afterword analyse gains -m afterword-mini --method classical --method echo --pairs pairs.jsonl
    """
    chosen = two(model, method or [])
    from ..papers.gains import gains as measure
    from ..tasks.pairs import read_pairs

    scored = read_pairs(pairs)
    check_scores({pairs.name: scored})
    first, second = (e for name, spec in chosen for _, e, _ in run.encoders([name], read_methods(spec)))
    results = measure(first, second, scored)
    head = [" ".join([n, name, *spec]) for n, (name, spec) in zip(("first ", "second"), chosen, strict=True)]
    return run.show([r.to_json() for r in results], [*head, *_gains(results)])


def two(models: Sequence[str], methods: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The model and the method of each of two encoders.

    Raises:
        typer.BadParameter: they are not two, or equal.
    """
    many = max(len(models), len(methods))
    if many != 2 or len(methods) > 2 or len(models) > 2:
        raise typer.BadParameter(
            f"{len(models)} x --model and {len(methods)} x --method: pass two of one of them, or of both",
            param_hint="--method",
        )
    specs = [[m] for m in methods] * (2 // len(methods)) if methods else [[], []]
    chosen = list(zip(list(models) * (2 // len(models)), specs, strict=True))
    if chosen[0] == chosen[1]:
        raise typer.BadParameter("both encoders are the same: pass two methods or two models", param_hint="--method")
    return chosen


def _gains(results: Sequence[Gain]) -> list[str]:
    """A line for each kind; * marks an interval without 0."""
    rows = [
        {"by": r.by, "kind": r.kind, "pairs": f"{r.pairs:,}", "first": _x100(r.first), "second": _x100(r.second),
         "gain": _x100(r.gain, r.interval), "95 %": _range(r.interval),
         "against others": _x100(r.others, r.others_interval),
         "95 % ": _range(r.others_interval), "forward": "-" if math.isnan(r.forward) else f"{100 * r.forward:.0f} %"}
        for r in results
    ]  # fmt: skip
    known = sum(not math.isnan(interval[0]) for r in results for interval in (r.interval, r.others_interval))
    return [
        "Spearman x 100; * is an interval without 0; forward: share of attention to later tokens in the bidirectional "
        "layers of the second",
        *aligned(rows, names=2),
        f"about one in twenty of such intervals leaves 0 by chance alone: of these {known}, {known / 20:.0f}",
    ]


def _x100(value: float, interval: tuple[float, float] | None = None) -> str:
    """A correlation; a difference with its sign, and * if its interval is without 0."""
    if math.isnan(value):
        return "-" + " " * (interval is not None)
    if interval is None:
        return f"{100 * value:.2f}"
    return f"{100 * value:+.2f}" + ("*" if interval[0] > 0 or interval[1] < 0 else " ")


def _range(interval: tuple[float, float]) -> str:
    return "-" if math.isnan(interval[0]) else f"{100 * interval[0]:+.2f} to {100 * interval[1]:+.2f}"


VERBS: dict[str, Any] = {
    "turning-point": turning_point, "dependency": dependency, "words": words, "impact": impact, "heads": heads,
    "isotropy": isotropy, "lengths": lengths, "attention": attention, "gains": gains,
}  # fmt: skip
for verb_name, verb in VERBS.items():
    analyse.command(verb_name, cls=Verb)(expanded(verb))
