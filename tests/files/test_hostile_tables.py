"""Hostile tables: every row of the input is a text or a named problem, at its line, and none is lost.

The tables are written by a writer of this file, byte by byte. `HYPOTHESIS_PROFILE=thorough` writes 10,000.
"""

import gzip
import io
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from afterword.files.lines import FileForm
from afterword.files.read import open_texts
from afterword.jobs.rows import items_of

ODD = "\",;|\t\n\r\0'\\ aé每个词👩\u2028\x0b\x85\ufeff"
NAMES = ["id", "note", "a b", "Text", "列"]


@dataclass(frozen=True)
class Row:
    """A row as it is written, and what should become of it: its cells, or a part of the problem."""

    written: str
    wanted: list[str] | str


@dataclass(frozen=True)
class Table:
    """A file, how it is said to be written, and its rows: line, cells or problem."""

    name: str
    content: bytes
    form: FileForm
    header: list[str]
    rows: list[tuple[int, list[str] | str]]


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def cell_of(cell: str, delimiter: str, always: bool) -> str:
    """A cell as RFC 4180 has it: in quotes where it must be, or everywhere."""
    return quoted(cell) if always or any(c in cell for c in '"\r\n' + delimiter) else cell


@st.composite
def rows(draw: st.DrawFn, alphabet: st.SearchStrategy[str], delimiter: str, wide: int, end: str) -> Row:
    """A row: a good one, a ragged one, a blank line, or one with text after a quote."""
    count = draw(st.sampled_from([wide] * 6 + [wide + 1, max(wide - 1, 1)]))
    always = draw(st.booleans())
    cells = draw(st.lists(alphabet, min_size=count, max_size=count))
    written = delimiter.join(cell_of(cell, delimiter, always) for cell in cells)
    kind = draw(st.sampled_from(["as it is"] * 6 + ["blank", "after"]))
    if kind == "blank" or not written:
        return Row(end, [""] if wide == 1 else "is a blank line")
    if kind == "after":
        return Row('"x"y' + delimiter + "z" + end, "is not CSV: ")
    return Row(written + end, cells if count == wide else f"has {count} fields")


@st.composite
def tables(draw: st.DrawFn) -> Table:
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16", "cp1252", "gb18030"]))
    said = encoding in ("utf-16", "cp1252", "gb18030")
    header = draw(st.permutations(["text", *draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))]))
    header = [name for name in header if name.isascii() or encoding != "cp1252"]
    delimiter = draw(st.sampled_from(",;\t")) if len(header) > 1 else ","
    end = draw(st.sampled_from(["\n", "\r\n"]))
    can = "".join(c for c in ODD if c.encode(encoding, "ignore").decode(encoding, "ignore").endswith(c))
    any_text = st.text(st.characters(codec=encoding if said else "utf-8"), max_size=5)
    alphabet = st.one_of(st.text(can, max_size=5), any_text, st.sampled_from(["a text", "1", ""]))
    drawn = draw(st.lists(rows(alphabet, delimiter, len(header), end), max_size=8))
    written = [
        delimiter.join(cell_of(name, delimiter, False) for name in header) + end,
        *(row.written for row in drawn),
    ]
    starts = [1 + "".join(written[: i + 1]).count("\n") for i in range(len(drawn))]
    if drawn and draw(st.booleans()) and written[-1] != end:
        written[-1] = written[-1].removesuffix(end)
    content, kind = "".join(written).encode(encoding), draw(st.sampled_from([".csv", ".tsv", ".csv.gz"]))
    named = draw(st.booleans()) or (kind == ".tsv" and len(header) == 1)
    form = FileForm(delimiter if named else None, encoding if said else draw(st.sampled_from([None, encoding])))
    packed = gzip.compress(content, 1) if kind.endswith(".gz") else content
    return Table(f"t{kind}", packed, form, header, [(at, row.wanted) for at, row in zip(starts, drawn, strict=True)])


@given(table=tables())
def test_every_row_is_read_or_named_at_its_line(tmp_path: Path, table: Table):
    path = tmp_path / table.name
    path.write_bytes(table.content)
    others = [name for name in table.header if name != "text"]
    with closing(open_texts(path, io.BytesIO(), keep=others, form=table.form, tell=lambda _: None)) as reader:
        found = list(items_of(reader, keep=others))
    assert reader.at == reader.total == path.stat().st_size
    assert [item.line for item in found] == [line for line, _ in table.rows]
    for item, (_, wanted) in zip(found, table.rows, strict=True):
        if isinstance(wanted, str):
            assert item.problem is not None and item.problem.startswith(wanted) and item.text is None
            continue
        row = dict(zip(table.header, wanted, strict=True))
        assert item.text == row.pop("text") and item.kept == row
        assert (item.problem is None) == bool(item.text.strip() and "\0" not in item.text)
