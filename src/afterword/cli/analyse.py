"""``afterword analyse``: the papers' measurements of a model's layers, tokens and vectors."""

from __future__ import annotations

import typer

from .analyse_attention import attention
from .analyse_dependency import dependency
from .analyse_gains import gains
from .analyse_heads import heads
from .analyse_impact import impact
from .analyse_isotropy import isotropy
from .analyse_lengths import lengths
from .analyse_turning import turning_point
from .analyse_words import words
from .help import Verb, Verbs

analyse = typer.Typer(help="Measure a model's layers, tokens and vectors, as the papers do.", cls=Verbs)


@analyse.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


analyse.command("turning-point", cls=Verb)(turning_point)
analyse.command("dependency", cls=Verb)(dependency)
analyse.command("words", cls=Verb)(words)
analyse.command("impact", cls=Verb)(impact)
analyse.command("heads", cls=Verb)(heads)
analyse.command("isotropy", cls=Verb)(isotropy)
analyse.command("lengths", cls=Verb)(lengths)
analyse.command("attention", cls=Verb)(attention)
analyse.command("gains", cls=Verb)(gains)
