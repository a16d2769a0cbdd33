"""``afterword play``: serve a page to try texts and words on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .console import say, without_advice
from .methods import suggestions
from .option_groups import Model, short_name

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..play import Choice

Port = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535,
    help="The port of the page's address; 0 takes a free one.")]  # fmt: skip


def play(model: Model, method: o.Methods = None, port: Port = 8765) -> int:
    """Serve a page on this machine: which words make two texts similar, and a word's vectors in several contexts.

    Two methods are shown beside each other. The page's address keeps what was typed. Ctrl-C stops the server.

    Examples:
        afterword play -m minilm
        afterword play -m smollm2 --method classical --method reba:mean
    """
    model.located()
    from ..play import Server

    try:
        server = Server(port)
    except OSError as e:
        raise typer.BadParameter(f"{port}: {e.strerror}: pass another port", param_hint="--port") from None
    with server:
        with without_advice():
            encoder = model.load(None)
        offered = choices(encoder, method)
        typer.echo(f"http://127.0.0.1:{server.server_port}/")
        say("open this address in a browser; Ctrl-C stops the server")
        try:
            server.serve(short_name(model.model), encoder, offered)
        except KeyboardInterrupt:
            say("stopped")
    return 0


def choices(encoder: Encoder, specs: list[str] | None) -> dict[str, Choice]:
    """The methods to choose from: these, or by default the model's own and those that suit it."""
    from ..methods.serialize import parse_method
    from ..play import Choice

    if specs:
        return {spec: Choice(parse_method(spec)) for spec in specs}
    suited = {one["method"]: Choice(parse_method(one["method"]), one["why"]) for one in suggestions(encoder)}
    own = (
        {}
        if encoder.method in [choice.method for choice in suited.values()]
        else {str(encoder.method): Choice(encoder.method, "the model's own method")}
    )
    return own | suited
