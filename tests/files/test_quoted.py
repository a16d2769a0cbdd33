"""Records of tables, also where a quote is missing."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterword.files import quoted
from afterword.files.quoted import Cells, Line, Records


def read(text: str, delimiter: str = ",") -> list[Cells]:
    lines = text.splitlines(keepends=True) if "\r" not in text else text.replace("\n", "\n\0").split("\0")
    return list(Records(((n, line, None) for n, line in enumerate(lines, 1) if line), delimiter))


def test_cells_in_quotes_hold_anything():
    found = read('a,"b, ""c"""\n"two\nlines",d\n\n,"e\r\n"\r\n')
    assert [(r.line, r.last, r.cells) for r in found] == [
        (1, 1, ["a", 'b, "c"']), (2, 3, ["two\nlines", "d"]), (4, 4, []), (5, 6, ["", "e\r\n"])
    ]  # fmt: skip


def test_an_unclosed_quote_costs_its_own_line():
    found = read('1,"unclosed here\n2,hello\n3,"wor\nld"\n4,"x\n5,y\n')
    assert [(r.line, r.cells or r.problem) for r in found] == [
        (1, "has a quote that is not closed"), (2, ["2", "hello"]), (3, ["3", "wor\nld"]),
        (5, "has a quote that is not closed"), (6, ["5", "y"]),
    ]  # fmt: skip


def test_what_else_is_no_csv():
    found = read('a,"b" c\nd,e\rf\ng,h\n')
    assert [r.cells for r in found] == [None, None, ["g", "h"]]
    assert found[0].problem.endswith('write a quote inside quotes twice ("")')
    assert (
        found[1].problem
        == "is not CSV: a carriage return is outside quotes: save the table with line feeds as line ends"
    )


def test_a_problem_of_a_line_is_one_of_its_record():
    lines = [(1, 'a,"b\n', None), (2, 'c"\n', "is damaged"), (3, "d,e\n", None)]
    assert [(r.line, r.cells or r.problem) for r in Records(iter(lines))] == [(1, "is damaged"), (3, ["d", "e"])]


def test_the_next_record_can_be_looked_at_for_every_delimiter():
    records = Records(iter([(1, '"a";"b\n', None), (2, 'c"\n', None), (3, "d\n", None)]), ";")
    assert (records.ahead(","), records.ahead(";"), records.ahead("|")) == (None, ["a", "b\nc"], None)
    assert [r.cells for r in records] == [["a", "b\nc"], ["d"]]


class Watched(Records):
    """Records that count how many lines were taken."""

    taken = 0

    def take(self) -> Line | None:
        self.taken += 1
        return super().take()


@pytest.mark.parametrize("line", ['a","""\n', 'a,"b\n', 'a,"""b\n', '"\n', 'a","\n'])
def test_many_unclosed_quotes_cost_no_more_than_the_file(line: str):
    records = Watched((n, line, None) for n in range(3000))
    found = list(records)
    assert records.taken < 4 * 3000 + 10 and sum(r.last - r.line + 1 for r in found) == 3000


def test_a_record_has_a_length(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quoted, "LONG", 100)
    found = read('a,"b\n' + "0123456789\n" * 50 + "c,d\n")
    assert found[0].problem == "has a quote that is not closed within 100 characters" and len(found) == 52
    assert found[-1].cells == ["c", "d"] and [r.line for r in found] == list(range(1, 53))


def test_an_open_quote_does_not_hold_the_file(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quoted, "LONG", 10_000)
    lines = ((n, "0123456789" * 10 + "\n" if n else 'a,"b\n', None) for n in range(10_000))
    tracemalloc.start()
    assert sum(row.cells is None for row in Records(lines)) == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300_000  # of 1 MB


def parsed(text: str, delimiter: str) -> list[str] | str:
    """One record, a character at a time: its cells, "open", or "wrong"."""
    cells, cell, where = list[str](), "", "start"
    for at, c in enumerate(text):
        if where == "quoted":
            cell, where = (cell, "quote") if c == '"' else (cell + c, where)
        elif where == "quote" and c == '"':
            cell, where = cell + c, "quoted"
        elif c in "\r\n":
            return "wrong" if text[at:].strip("\r\n") else [*cells, cell] if cells or where != "start" else []
        elif c == delimiter:
            cells, cell, where = [*cells, cell], "", "start"
        elif where == "quote":
            return "wrong"
        elif where == "start" and c == '"':
            where = "quoted"
        else:
            cell, where = cell + c, "plain"
    return "open" if where == "quoted" else [*cells, cell]


def reference(lines: list[str], delimiter: str) -> list[tuple[int, int, list[str] | None]]:
    """Records as the slowest reader finds them: each line is tried with every number of lines after it."""
    found, at = list[tuple[int, int, list[str] | None]](), 0
    while at < len(lines):
        tried = (parsed("".join(lines[at : end + 1]), delimiter) for end in range(at, len(lines)))
        end, result = next(((i, r) for i, r in enumerate(tried) if r != "open"), (0, "open"))
        cells = result if isinstance(result, list) else None
        end = end if cells is not None else 0
        found.append((at + 1, at + 1 + end, cells))
        at += 1 + end
    return found


@given(st.lists(st.text('",;a \r\0', max_size=6), max_size=10), st.booleans(), st.sampled_from(",;"))
def test_any_lines_are_read_as_the_slowest_reader_reads_them(lines: list[str], ended: bool, delimiter: str):
    lines = [line + "\n" for line in lines]
    if lines and not ended and lines[-1] != "\n":
        lines[-1] = lines[-1][:-1]
    records = Records(((n, line, None) for n, line in enumerate(lines, 1)), delimiter)
    assert [(r.line, r.last, r.cells) for r in records] == reference(lines, delimiter)
