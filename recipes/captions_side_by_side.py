"""Captions that several methods retrieve for one caption, side by side: BeLLM's Table 5, on any model.

    python recipes/captions_side_by_side.py --model afterword-mini --method classical --method reba:copies=2 \\
        --data ../shared/data --query "police officer"

Without --query and --image it asks for the table's own query. A caption of the same image is in bold. The methods of a
model share forwards where they can.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from afterword import AfterwordError, Encoder
from afterword.errors import InputError
from afterword.methods.serialize import parse_method
from afterword.tasks.captions import TASKS, CaptionRetrieval, Captions
from afterword.tasks.rows import Folder
from afterword.tasks.side_by_side import markdown, side_by_side
from afterword.tasks.task import Array, as_read

OFFICER = "226481576.jpg"  # "A female police officer ..."


def vectors(models: list[str], methods: list[str], captions: Captions) -> dict[str, Array]:
    """The vectors of all captions by each method of each model, under the names that head the columns.

    Raises:
        InputError: two columns have one name.
    """
    made: dict[str, Array] = {}
    for given in models:
        name, _, model = given.rpartition("=")
        name = name or Path(model).name
        encoder = Encoder.load(model, methods[0] if methods else None)
        named = {f"{name} {m}": parse_method(m) for m in methods} or {name: encoder.method}
        if twice := made.keys() & named.keys():
            raise InputError(f"two models are named {twice.pop()!r}: give one of them another name, as in other=MODEL")
        made |= encoder.encode_many([as_read(s) for s in captions.sentences], named)
    return made


def chosen(captions: Captions, images: list[str], query: str | None) -> list[str]:
    """The images to ask for: those named, and those whose first caption holds the query, in upper or lower case.

    Raises:
        InputError: no first caption holds it.
    """
    firsts = {name: captions.sentences[i] for name, i in zip(captions.images, captions.first, strict=True)}
    found = [name for name, first in firsts.items() if query and query.casefold() in first.casefold()]
    if query and not found:
        raise InputError(f"no image's first caption holds {query!r}")
    return images + found or [OFFICER]


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description="Captions that several methods retrieve, side by side.")
    parser.add_argument("--model", action="append", required=True, help="or NAME=MODEL; repeat it to compare models")
    parser.add_argument("--method", action="append", default=[], help="as in reba:copies=2; default: the model's own")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of en/")
    parser.add_argument("--file", default="en/flickr30k/captions.test", help="the captions' data set in it")
    parser.add_argument("--image", action="append", default=[], help="whose first caption is the query")
    parser.add_argument("--query", help="a part of the first captions that are queries")
    parser.add_argument("--top", type=int, default=4, help="captions of each method")
    return parser


def main() -> int:
    """Run the command; a mistake of the user is one line and exit code 2."""
    args = options().parse_args()
    task = next(t for t in TASKS if isinstance(t, CaptionRetrieval))
    try:
        captions = replace(task, file=args.file).load(Folder(args.data))
        images = chosen(captions, args.image, args.query)
        made = vectors(args.model, args.method, captions)
        print(markdown(side_by_side(captions, made, images, args.top)))
    except AfterwordError as error:
        print(f"captions_side_by_side: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
