"""Pages fit the terminal, whatever the texts: widths count cells, and numbers are never cut."""

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from afterword.cli.page import JOINERS, PIPE, RED, Column, cut, one_line, page_width, styled, table, wrapped

texts = st.text(
    st.characters(codec="utf-8") | st.sampled_from("中é e\u0301\u200d\ufe0f👩\x1b\u202e\n\t…"), max_size=200
)


@given(text=texts, cells=st.integers(0, 100))
def test_a_text_is_cut_to_its_cells(text: str, cells: int):
    found, whole = cut(text, cells), one_line(text)
    assert cell_len(found) <= cells and all(c.isprintable() or c in JOINERS for c in found)
    assert found == whole if cell_len(whole) <= cells else found[:-1] == whole[: len(found[:-1])]
    if cell_len(whole) > cells > 0:  # nothing more would have fitted, but a wide character
        assert found.endswith("…") and cell_len(found) >= cells - 1


def test_what_a_terminal_would_obey_is_not_printed():
    assert one_line("a\x1b[31mred\nb") == "a\N{REPLACEMENT CHARACTER}[31mred b"
    assert one_line("\u202eabc\u200d\ufeff\x00") == "abc\N{REPLACEMENT CHARACTER}"
    assert one_line("each word 每个词 ❤\ufe0f") == "each word 每个词 ❤"
    assert one_line("a\u200db \u200d\u202e") == "ab "


@pytest.mark.parametrize("whole", ["👩\u200d👩\u200d👧", "क\u094d\u200dष", "می\u200cخواهم", "❤\u200d🔥"])
def test_joined_characters_stay_joined(whole: str):
    assert one_line(whole) == cut(whole, 12) == whole
    assert cut(f"{whole} {'x' * 20}", 13).startswith(f"{whole} xx")
    assert cut("ab👩\u200d👩\u200d👧cdef", 5) == "ab👩\u200d👩\u200d👧…"
    assert cut("ab👩\u200d👩\u200d👧cdef", 4) == "ab…"


@given(
    rows=st.lists(st.tuples(texts, texts, st.floats(-1, 1)), min_size=1, max_size=5),
    scores=st.integers(1, 12), width=st.integers(40, 200),
)  # fmt: skip
@example(rows=[("", "0", 0.0)], scores=5, width=41)  # a column of empty cells takes no room
def test_no_line_of_a_table_is_wider_than_the_page(rows, scores, width):
    numbers = [[f"{x + k:.3f}" for *_, x in rows] for k in range(scores)]
    columns = [
        Column([str(i) for i in range(len(rows))], "label"),
        *(Column(n, "score", f"m{k}") for k, n in enumerate(numbers)),
    ]
    columns += [Column([row[i] for row in rows], "text") for i in (0, 1)]
    lines = table(columns, width)
    assert max(map(cell_len, lines)) <= width
    for i in range(len(rows)):
        of_row = [line.split() for line in lines if line.split()[:1] == [str(i)]]
        found = [word for words in of_row for word in words[1:]]
        assert [word for word in found if word in {n[i] for n in numbers}][:scores] or scores == 0
        assert all(n[i] in found for n in numbers)


def test_columns_share_what_is_left():
    assert table([Column(["1.0"], "score"), Column(["short"], "text"), Column(["long " * 9], "text")], 30) == [
        "1.0  short  long long long lo…"
    ]
    assert table([Column(["a", "b"], "label", "x"), Column(["1", "22"], "score", "n")], 40) == [
        "x   n",
        "a   1",
        "b  22",
    ]
    assert table([Column([], "label")], 40) == []


def test_a_label_cannot_move_the_cursor():
    assert table([Column(["a\x1b[2J"], "label"), Column(["x"], "text")], 40) == ["a\N{REPLACEMENT CHARACTER}[2J  x"]


def test_prose_breaks_between_words():
    assert wrapped("a self-check of thirteen letters", 16, "  ") == ["  a self-check", "  of thirteen", "  letters"]
    assert wrapped("", 20, "    ", "name") == ["name"]


def test_the_width_is_that_of_the_terminal_or_of_a_pipe(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "72")
    assert page_width() == 72 and page_width(most=60) == 60
    monkeypatch.setenv("COLUMNS", "3")
    assert page_width() == 20
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr("sys.__stdout__", io.StringIO())
    assert page_width() == PIPE


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert styled("error:", RED, Terminal()) == "\x1b[31merror:\x1b[0m"
    assert styled("error:", RED, io.StringIO()) == "error:"
    monkeypatch.setenv("TERM", "dumb")
    assert styled("error:", RED, Terminal()) == "error:"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("error:", RED, Terminal()) == "error:"
