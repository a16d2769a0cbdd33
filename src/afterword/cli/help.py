"""Help pages: options in groups, examples, whole summaries, and bold headings on a terminal."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from typing import Any

import typer.core

from .console import OPTIONS, option_names
from .page import BOLD, GAP, styled, wrapped

INDENT = "  "
LONGEST = 30  # length of the longest name that has its meaning beside it

NAMES = {"help_option_names": ["-h", "--help"]}

GROUPS = {
    "Model": "model sentence-transformer revision trust-remote-code max-length",
    "Input": "input against pairs format field column delimiter encoding no-header occurrence span row data dev test "
    "texts labels tasks frequencies corpus first above baseline published draws id from",
    "Index": "language no-text-search exact kind prune status optimize queries qrels where each",
    "Method": "method template copies both-ways heads head layer token post fit prompt prompt-name query-prompt-name "
    "condition condition-field chunk overlap late pool states pivot centre normalize truncate-dim on-long by over k "
    "margin criterion quick",
    "Loss": "loss weights temperature scale mini-batch matryoshka",
    "LoRA and new layers": "rank alpha dropout targets full-rank four-bit add fresh keep-adapter",
    "Training": "learning-rate warmup batch-size accumulate epochs steps distinct seed seeds every patience resume "
    "log-every",
    "Output": "output out repeats overwrite keep id no-text rejects max-rejects save name csv plot dark top threshold "
    "show json progress",
    "Speed and memory": "device dtype precision batch-tokens window gradient-checkpointing",
    "Jobs": "workers ray threads shard-rows dry-run",
}
"""The groups of options, by the names of the options; all others come last."""
FEW = 8  # a verb with fewer options has one group

EXAMPLES = {
    "": (
        'similar -m minilm "a cat sat down" "the feline took a seat" "interest rates rose"',
        "embed -m minilm -i texts.txt -o vectors.parquet",
        "embed --help",
    ),
    "embed": (
        'embed -m minilm "The bank raised its rates."',
        "embed -m minilm -i tickets.csv --column body -o vectors.parquet",
        "embed -m minilm -i texts.txt -o vectors/",
    ),
    "job": ("job status vectors/", "job verify vectors/ --shards 2"),
    "job status": ("job status vectors/",),
    "job verify": ("job verify vectors/ --shards 2",),
    "job join": ("job join vectors/ -o vectors.parquet",),
    "words": ('words -m minilm "We sat on the bank of the river." bank river',),
    "similar": (
        'similar -m minilm "a cat sat down" "the feline took a seat" "interest rates rose"',
        'similar -m minilm "my parcel is late" --against vectors.parquet --top 5',
    ),
    "duplicates": (
        "duplicates -i vectors.parquet --over 0.9 -o kept.jsonl",
        "duplicates -m minilm -i texts.txt --repeats repeats.csv",
    ),
    "cluster": ("cluster -i vectors.parquet --k 8 -o clusters.csv", "cluster -m minilm -i texts.txt"),
    "index": (
        "index tickets -m minilm -i tickets.csv --column body --id id",
        "index tickets --status",
    ),
    "search": (
        'search tickets "a parcel that never came"',
        'search tickets "refund" --by text --top 3',
        "search tickets --queries queries.jsonl --qrels judged.tsv",
    ),
    "methods": ("methods", "methods reba"),
    "inspect": ("inspect -m minilm",),
    "analyse turning-point": ("analyse turning-point -m afterword-mini --dev pairs.jsonl",),
    "analyse dependency": ("analyse dependency -m afterword-mini --method classical -i texts.txt",),
    "analyse words": ("analyse words -m afterword-mini -i texts.txt --frequencies texts.txt",),
    "analyse impact": ("analyse impact -m minilm -i texts.txt --first 20",),
    "analyse heads": ("analyse heads -m minilm --dev pairs.jsonl",),
    "analyse isotropy": ("analyse isotropy -m minilm --pairs pairs.jsonl",),
    "analyse lengths": ("analyse lengths -m minilm -m afterword-mini -i texts.txt",),
    "analyse attention": (
        'analyse attention -m afterword-mini --method reba --token bank "The bank was steep."',
        'analyse attention -m minilm --head 2-1 --head 2-3 "The bank was steep."',
    ),
    "analyse gains": ("analyse gains -m afterword-mini --method classical --method echo --pairs pairs.jsonl",),
    "train": ("train -m afterword-mini --method bellm:last=2 --data triplets.jsonl --out my-encoder",),
    "evaluate": (
        "evaluate --list",
        "evaluate -m minilm --data . --tasks pairs.jsonl --out results",
    ),
    "tune": ("tune -m minilm --dev pairs.jsonl --out best",),
    "compare": ("compare --list", "compare results"),
}
"""Command lines for each verb, without ``afterword``."""


class PlainHelp:
    """The parts of a help page that commands and groups of commands share."""

    def get_help(self, ctx: Any) -> str:
        """The page; on a terminal its headings are bold."""
        page: str = super().get_help(ctx)  # type: ignore[misc]
        return re.sub(r"^(Usage:|[A-Z][A-Za-z ]*:$)", lambda m: styled(m[0], BOLD, sys.stdout), page, flags=re.M)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the command does."""
        text: str = inspect.cleandoc(self.help or "")  # type: ignore[attr-defined]
        for paragraph in text.split("\n\n"):
            formatter.write_paragraph()
            formatter.write("\n".join(wrapped(" ".join(paragraph.split()), formatter.width, INDENT)) + "\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options in groups."""
        params = [(p, p.get_help_record(ctx)) for p in self.get_params(ctx)]  # type: ignore[attr-defined]
        arguments = [(row[0].split(" ")[0], row[1]) for p, row in params if row and p.param_type_name == "argument"]
        options = [(group_of(p.opts), row) for p, row in params if row and p.param_type_name == "option"]
        if len(options) < FEW:
            options = [("Options", row) for _, row in options]
        for title in ("Arguments", *GROUPS, "Options"):
            rows = arguments if title == "Arguments" else [row for group, row in options if group == title]
            if rows:
                write_rows(formatter, title, rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        if lines := EXAMPLES.get(ctx.command_path.partition(" ")[2]):
            with formatter.section("Examples"):
                for line in lines:
                    formatter.write(f"  afterword {line}\n")


def write_rows(formatter: Any, title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Write a section of names and their meanings; unlike click's, it breaks no word at its hyphens."""
    column = min(max(len(name) for name, _ in rows), LONGEST) + len(INDENT)
    indent = " " * (column + GAP)
    with formatter.section(title):
        for name, meaning in rows:
            short = len(name) <= LONGEST
            lines = wrapped(meaning, formatter.width, indent, f"{INDENT}{name}".ljust(len(indent)) if short else None)
            formatter.write("\n".join(lines if short else [f"{INDENT}{name}", *lines]) + "\n")


def group_of(names: Sequence[str]) -> str:
    """The group of an option with these names.

    >>> group_of(["-m", "--model"]), group_of(["--version"])
    ('Model', 'Options')
    """
    wanted = {name.removeprefix("--") for name in names}
    return next((group for group, known in GROUPS.items() if wanted & set(known.split())), "Options")


class Verb(PlainHelp, typer.core.TyperCommand):
    """A verb of the command line."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; messages name its options."""
        OPTIONS.update(option_names(self.params))
        return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a missing model is asked for with an example."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as e:
            if "--model" in getattr(e.param, "opts", ()) and not e.message:
                e.message = "Give one, such as -m minilm."
            raise


class Verbs(PlainHelp, typer.core.TyperGroup):
    """A command with several verbs."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, and the verbs with their whole summaries."""
        super().format_options(ctx, formatter)
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            help_text = (command.help if command else None) or ""
            rows.append((name, " ".join(help_text.split("\n\n")[0].split())))
        write_rows(formatter, "Commands", rows)
