"""How verbs are declared: option groups, examples, and help pages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer.core

from .console import OPTIONS, option_names
from .option_groups import TITLES
from .tables import definitions

SETTINGS: dict[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "rich_markup_mode": None,  # help without rich: quick, and the same everywhere
    "pretty_exceptions_enable": False,
    "add_completion": False,
}
"""Of every `typer.Typer`."""


def expanded(verb: Callable[..., int]) -> Callable[..., int]:
    """A verb whose parameters that are option groups, which are dataclasses, are replaced by the groups' fields.

    A group has a ``title``, under which its options stand in the help.
    """
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    @wraps(verb)
    def called(**options: Any) -> int:
        made = {name: group(**{f.name: options.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        return verb(**options, **made)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if name in groups:
            parameters += _parameters(groups[name])
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name]))
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    parameters = []
    for f in fields(group):
        option = copy(hints[f.name].__metadata__[0])
        option.rich_help_panel = TITLES.get(f.name, group.title)
        default = inspect.Parameter.empty if f.default is MISSING else f.default
        annotation: Any = Annotated[hints[f.name].__origin__, option]
        parameters.append(
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    return parameters


class Page:
    """A help page: options under the titles of their groups, and the examples of the docstring at the end."""

    params: list[Any]

    def __init__(self, *args: Any, help: str | None = None, **options: Any) -> None:
        text, _, examples = inspect.cleandoc(help or "").partition("\n\nExamples:\n")
        options["epilog"] = f"\b\nExamples:\n{examples}" if examples else None
        super().__init__(*args, help=text, **options)  # type: ignore[call-arg]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options in groups."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            if row := parameter.get_help_record(ctx):
                title = parameter.rich_help_panel or TITLES.get(parameter.name, "Options")
                if parameter.param_type_name == "argument":
                    title, row = "Arguments", (row[0].split(" ")[0], row[1])
                sections.setdefault(title, []).append(row)
        sections["Options"] = sections.pop("Options")
        for title, rows in sections.items():
            if rows:
                write_rows(formatter, title, rows)


def write_rows(formatter: Any, title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Write a section of names and their meanings; unlike click's, it breaks no option at its hyphens."""
    with formatter.section(title):
        formatter.write("\n".join(definitions(rows, formatter.width, "  ")) + "\n")


class Verb(Page, typer.core.TyperCommand):
    """A verb of the command line."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; messages name its options."""
        OPTIONS.update(option_names(self.params))
        return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a missing model is answered with an example."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as e:
            if "--model" in getattr(e.param, "opts", ()) and not e.message:
                e.message = "Pass one, such as -m minilm."
            raise


class Verbs(Page, typer.core.TyperGroup):
    """A command with several verbs."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, and the verbs with their summaries."""
        super().format_options(ctx, formatter)
        rows = [(name, _summary(self.get_command(ctx, name))) for name in self.list_commands(ctx)]
        write_rows(formatter, "Commands", rows)


def _summary(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())
