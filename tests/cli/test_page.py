"""Pages fit the terminal, whatever the texts: widths count cells, and numbers are never cut."""

from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from afterword.cli.page import JOINERS, Column, cut, one_line, table

texts = st.text(
    st.characters(codec="utf-8") | st.sampled_from("中é e\u0301\u200d\ufe0f👩\x1b\u202e\n\t…"), max_size=200
)


@given(text=texts, cells=st.integers(0, 100))
def test_a_text_is_cut_to_its_cells(text: str, cells: int):
    found, whole = cut(text, cells), one_line(text)
    assert cell_len(found) <= cells and all(c.isprintable() or c in JOINERS for c in found)
    assert found == whole if cell_len(whole) <= cells else found[:-1] == whole[: len(found[:-1])]


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
