"""The options that several verbs have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Model = Annotated[
    str,
    typer.Option(
        "-m", "--model", show_default=False, metavar="MODEL",
        help="A folder (of a model, a saved encoder, or of sentence-transformers), or a model on the Hugging Face hub.",
    ),
]  # fmt: skip
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method", metavar="METHOD",
        help="NAME, NAME:option=value,..., @file.json or @file.py:name; see `afterword methods`. "
        "May be given several times. Without it: the folder's own, or classical.",
    ),
]  # fmt: skip
Method = Annotated[
    str | None,
    typer.Option(
        "--method", metavar="METHOD",
        help="NAME, NAME:option=value,..., @file.json or @file.py:name; see `afterword methods`. "
        "Without it: the folder's own, or classical.",
    ),
]  # fmt: skip
Input = Annotated[
    Path | None,
    typer.Option(
        "-i",
        "--input",
        metavar="FILE",
        help="A .txt, .jsonl, .csv or .parquet file of texts, perhaps gzipped (.gz); - is stdin.",
    ),
]
Format = Annotated[
    Literal["txt", "jsonl", "csv", "parquet"] | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="txt, jsonl, csv or parquet, where the input's name does not tell. Stdin is txt otherwise.",
    ),
]
Field = Annotated[
    str | None,
    typer.Option(
        "--field", "--column", metavar="NAME",
        help="The column or field that holds the texts. Default: text, or a table's only column.",
    ),
]  # fmt: skip
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="A .jsonl, .parquet or .npy file; otherwise JSON lines to stdout."
    ),
]
RejectsFile = Annotated[
    Path | None,
    typer.Option(
        "--rejects", metavar="FILE",
        help="Where rows without a vector are listed. Default: OUTPUT.rejects.jsonl, or on stderr.",
    ),
]  # fmt: skip
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="DEVICE", help="cpu, cuda, cuda:1, mps. Default: a GPU if there is one."),
]
Dtype = Annotated[
    Literal["float32", "bfloat16", "float16", "float64", "auto"] | None,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        help="float32, bfloat16, float16, float64, or auto, the checkpoint's own. Default: float32 on a CPU.",
    ),
]
Products = Annotated[
    Literal["float32", "bfloat16"] | None,
    typer.Option(
        "--products",
        metavar="PRODUCTS",
        help="What a float32 model's matrices are rounded to in its products on a CPU: float32, or bfloat16, "
        "which is faster on processors with AMX or AVX512-BF16 and refused on others.",
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        "--max-length", min=1, metavar="N", help="Tokens of a text at most, template and special tokens included."
    ),
]
Revision = Annotated[
    str | None, typer.Option("--revision", metavar="REVISION", help="A branch, tag or commit on the hub.")
]
Trust = Annotated[bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens", min=1, metavar="N", help="Tokens of a forward pass, about. Halved when memory runs out."
    ),
]
Normalize = Annotated[bool, typer.Option("--normalize", help="Scale every vector to length 1.")]
TruncateDim = Annotated[
    int | None,
    typer.Option("--truncate-dim", min=1, metavar="N", help="Keep the first components only."),
]
Prompt = Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="Put this in front of every text.")]
PromptName = Annotated[
    str | None,
    typer.Option("--prompt-name", metavar="NAME", help="Put this prompt of the model in front of every text."),
]
OnLong = Annotated[
    Literal["warn", "error", "ignore"],
    typer.Option(
        "--on-long",
        metavar="WHAT",
        help="A text over the length is cut and counted (warn), rejected (error), or just cut (ignore).",
    ),
]
Progress = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="A progress bar on stderr. Default: where stderr is a terminal."),
]
Window = Annotated[
    int,
    typer.Option("--window", min=1, metavar="N", help="Rows that are held in memory and sorted by length together."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
