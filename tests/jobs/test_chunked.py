"""Rows of chunks, as `embed --chunk` and jobs have them; tests/cli/test_chunked.py compares their vectors."""

from pathlib import Path

from afterword import Encoder, classical
from afterword.jobs.recipe import Chunking, MethodsEmbedder, columns
from afterword.jobs.rows import Item


def test_a_row_for_each_chunk_and_a_row_for_what_has_none(llama: Path) -> None:
    options = {"prompt": None, "prompt_name": None}
    embedder = MethodsEmbedder(Encoder.load(llama, classical()), {"vector": classical()}, options)
    items = [Item(1, "One. Two."), Item(2, "", "is empty")]
    rows = list(Chunking("sentences", None, False).items(items, embedder))
    assert [(r.line, r.text, r.problem) for r in rows] == [(1, "One.", None), (1, "Two.", None), (2, "", "is empty")]
    made = columns(rows, {"text": "text", "line": "number"}, True)
    assert made["chunk"] == [0, 1, None] and made["start"] == [0, 5, None] and made["line"] == [1, 1, 2]
