"""Names that commands and jobs share: of vectors, and of options in messages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import TooLong, WordNotFound

ARGUMENT = re.compile(
    r"(?<![\w.'\"])(?:(max_length|batch_tokens|on_long|prompt_name|truncate_dim|trust_remote_code)\b|"
    r"(above|device|dtype|prompt|revision|tokens)(?==))(?:=(\w+|'[^']*'))?"
)


def with_options(message: str) -> str:
    """A message of the library with the options of the command line in place of Python's arguments, but in quotes.

    >>> with_options("truncate_dim=9999: too many; lower max_length, or pass trust_remote_code=True, prompt=''")
    "--truncate-dim 9999: too many; lower --max-length, or pass --trust-remote-code, --prompt ''"
    >>> with_options("no word 'max_length' is in the text")
    "no word 'max_length' is in the text"
    """

    def option(found: re.Match[str]) -> str:
        given, value = found[1] or found[2], found[3]
        name = f"--{'chunk' if given == 'tokens' else given.replace('_', '-')}"
        return name if value in (None, "True") else f"{name} {shlex.quote(value.strip(chr(39)))}"

    return ARGUMENT.sub(option, message)


@contextmanager
def reasons_with_options() -> Iterator[None]:
    """The reason why a row is rejected names the options of the command line, also in the list of such rows."""
    try:
        yield
    except (TooLong, WordNotFound) as e:
        raise type(e)(with_options(str(e))) from None
