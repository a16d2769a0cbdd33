"""An index holds the vectors of `encode`; an update embeds what is new, and deletes what is gone."""

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Ended, Run

from afterword import Encoder
from afterword.search.index import Index

ROWS = [
    ("1", "The bank raised its rates.", "mail"), ("O'Brien", "We walked along the river.", "chat"),
    ("👩‍👩‍👧", "银行昨天提高了利率。", "chat"), ('say "no"', "first\nsecond line", "mail"),
]  # fmt: skip


class Indexed:
    """A command line, its input and its index."""

    def __init__(self, run: Run, model: Path, folder: Path) -> None:
        self.run, self.model, self.folder, self.input = run, model, folder / "index", folder / "in.csv"

    def __call__(self, rows: list[tuple[str, ...]], *words: object, method: str = "classical") -> Ended:
        with self.input.open("w", newline="") as file:
            csv.writer(file).writerows([("n", "body", "channel"), *rows])
        usual = ("-m", self.model, "--method", method, "-i", self.input, "--column", "body", "--id", "n")
        return self.run("index", self.folder, *usual, *words)

    @property
    def rows(self) -> dict[str, Any]:
        return {row["id"]: row for row in Index.open(self.folder).table.to_arrow().to_pylist()}


@pytest.fixture
def indexed(run: Run, gpt2: Path, tmp_path: Path) -> Indexed:
    return Indexed(run, gpt2, tmp_path)


def test_vectors_are_those_of_encode_bit_for_bit(indexed: Indexed):
    ended = indexed(ROWS, "--keep", "channel")
    assert ended.code == 0
    assert ended.last == f"4 embedded; {indexed.folder} has 4 rows"
    expected = Encoder.load(str(indexed.model), "classical").encode([text for _, text, _ in ROWS])
    for (id, text, channel), vector in zip(ROWS, expected, strict=True):
        row = indexed.rows[id]
        assert (row["text"], row["channel"], row["doc"]) == (text, channel, id)
        assert np.array_equal(np.array(row["vector"], np.float32), vector)
    assert not (indexed.folder / "job").exists()


def test_an_update_embeds_what_is_new(indexed: Indexed):
    indexed(ROWS)
    changed = [ROWS[0], ("O'Brien", "We ran along the river.", "chat"), *ROWS[2:], ("5", "new", "mail")]
    assert indexed(changed).last == f"2 embedded, 3 known; {indexed.folder} has 5 rows"
    assert indexed.rows["O'Brien"]["text"] == "We ran along the river."
    assert indexed(changed).last == f"0 embedded, 5 known; {indexed.folder} has 5 rows"
    expected = Encoder.load(str(indexed.model), "classical").encode(["new"])[0]
    assert np.array_equal(np.array(indexed.rows["5"]["vector"], np.float32), expected)


def test_prune_deletes_what_the_input_no_longer_has(indexed: Indexed):
    indexed(ROWS)
    assert indexed(ROWS[2:]).last.startswith("0 embedded, 2 known;")
    assert len(indexed.rows) == 4
    ended = indexed(ROWS[2:], "--prune")
    assert ended.last == f"0 embedded, 2 known, 2 deleted; {indexed.folder} has 2 rows"
    assert set(indexed.rows) == {ROWS[2][0], ROWS[3][0]}
    long = ("😀'" * 3000, "text", "x")
    assert "1 embedded, 2 known" in indexed([*ROWS[2:], long]).last
    assert "1 embedded, 2 deleted" in indexed([(long[0], "other", "x")], "--prune").last
    assert indexed.rows[long[0]]["text"] == "other" and len(indexed.rows) == 1


def test_a_rejected_row_is_not_pruned(indexed: Indexed):
    indexed(ROWS)
    ended = indexed([("1", " ", "mail"), *ROWS[1:3]], "--prune")
    assert ended.code == 1 and "2 known, 1 deleted" in ended.err
    assert set(indexed.rows) == {"1", "O'Brien", ROWS[2][0]}
    ended = indexed([("", "text", "mail"), *ROWS[1:3]], "--prune")
    assert ended.code == 1 and len(indexed.rows) == 3
    told = "nothing is pruned: 1 rejected row without an id, the first of them the row in line 2, may be among the 1 "
    assert told + "that the input no longer has: mend or remove them, and prune again\n" in ended.err


@pytest.mark.parametrize("id", [["--id", "n"], []])
def test_an_unreadable_line_is_no_removed_row(run: Run, gpt2: Path, tmp_path: Path, id: list[str]):
    path = tmp_path / "t.jsonl"
    given = ("index", tmp_path / "a", "-m", gpt2, "-i", path, *id)
    lines = ['{"n": 1, "text": "a bank"}', '{"n": 2, "text": "a river"}', '{"n": 3, "text": "a tree"}']
    path.write_text("\n".join(lines))
    assert run(*given).code == 0
    path.write_text("\n".join([lines[0], lines[1][:9], '{"n": 4, "text": "new"}']))
    ended = run(*given, "--prune")
    assert ended.code == 1 and "may be among the 2 that the input no longer has" in ended.err
    assert Index.open(tmp_path / "a").rows == 4
    path.write_text("\n".join([*lines, lines[1][:9], '{"n": 4, "text": "new"}']))
    ended = run(*given, "--prune")
    assert ended.code == 1 and "pruned" not in ended.err


def test_chunks_of_a_rejected_text_stay(indexed: Indexed):
    indexed([("a", "One. Two.", "x"), ("b", "Three.", "x")], "--chunk", "sentences")
    before = set(indexed.rows)
    assert indexed([("a", " ", "x")], "--chunk", "sentences").code == 1
    assert set(indexed.rows) == before
    assert indexed([("a", " ", "x"), ("c", "Four.", "x")], "--chunk", "sentences", "--prune").code == 1
    assert set(indexed.rows) == {*(id for id in before if id[0] == "a"), "c#0"}


@pytest.mark.parametrize("rows", [[], [("1", " ", "mail"), ("", "text", "mail")]])
def test_an_input_without_a_row_prunes_nothing(indexed: Indexed, rows: list[tuple[str, ...]]):
    indexed(ROWS)
    ended = indexed(rows, "--prune")
    assert ended.code == 2 and "no row of the input can be used: --prune would delete" in ended.last
    assert len(indexed.rows) == 4
    assert indexed(rows).code == len(rows) // 2


def test_a_kept_value_that_changed_is_stored(indexed: Indexed):
    indexed(ROWS, "--keep", "channel")
    indexed([(*ROWS[0][:2], "letter"), *ROWS[1:]], "--keep", "channel")
    assert indexed.rows["1"]["channel"] == "letter"


def test_rows_without_a_vector_are_listed_and_left_out(indexed: Indexed):
    ended = indexed([*ROWS, ("9", " ", "mail"), ("1", "another text", "mail")])
    assert ended.code == 1 and ended.last == f"2 rejected, listed in {indexed.folder / 'rejects.jsonl'}"
    listed = [json.loads(line) for line in (indexed.folder / "rejects.jsonl").read_text().splitlines()]
    assert [row["reason"] for row in listed] == ["is blank", "has the id '1' of the row in line 2"]
    assert len(indexed.rows) == 4
    assert indexed([*ROWS, ("9", " ", "mail")]).code == 1
    (again,) = (indexed.folder / "rejects.jsonl").read_text().splitlines()
    assert json.loads(again) == {"row": 4, "line": 7, "reason": "is blank"} == {**listed[0], "line": 7}


def test_a_rejected_row_has_its_number_in_the_input_at_the_first_build_and_at_an_update(indexed: Indexed):
    given, lists = [ROWS[0], ROWS[0], ("9", " ", "mail"), ROWS[1], ROWS[0], ("8", "", "mail")], []
    for _ in range(2):
        assert indexed(given, "--window", 2).code == 1
        lists.append((indexed.folder / "rejects.jsonl").read_text())
    assert [json.loads(line)["row"] for line in lists[0].splitlines()] == [2, 5] and lists[1] == lists[0]


def test_chunks_that_share_tokens_are_an_index_of_their_own(indexed: Indexed):
    text = "  The bank raised its rates, and so did O'Brien's. 银行提高了利率。"
    words = ("--chunk", "16", "--overlap", "5")
    assert indexed([("a", text, "x")], *words, method="echo").code == 0
    rows = sorted(indexed.rows.values(), key=lambda row: row["chunk"])
    assert len(rows) > 3 and all(text[row["start"] : row["end"]] == row["text"] for row in rows)
    shared = [a["end"] - b["start"] for a, b in itertools.pairwise(rows)]
    assert min(shared) > 0 and rows[0]["start"] == 2 and rows[-1]["end"] == len(text)
    assert f"0 embedded, {len(rows)} known" in indexed([("a", text, "x")], *words, method="echo").last
    for other, now in (["--overlap", "4"], "4"), ([], "not set"):
        ended = indexed([("a", text, "x")], "--chunk", "16", *other, method="echo")
        assert ended.code == 2 and f"was made with --overlap 5, and now it is {now}" in ended.err
    status = json.loads(indexed.run("index", indexed.folder, "--status", "--json").out)
    assert status["chunk"] == "16, 5 shared"


def test_another_method_or_setting_is_refused(indexed: Indexed):
    indexed(ROWS)
    ended = indexed(ROWS, method="echo")
    assert ended.code == 2 and "this encoder has echo-2 mean" in ended.err and len(indexed.rows) == 4
    ended = indexed(ROWS, "--chunk", "8")
    assert ended.code == 2 and "was made with --chunk not set, and now it is 8" in ended.err


def test_nothing_to_embed_makes_no_index(indexed: Indexed):
    ended = indexed([])
    assert ended.code == 2 and "the input is empty" in ended.last
    ended = indexed([("1", " ", "a")])
    assert ended.code == 2 and "no row could be embedded: 1 of 1 rejected" in ended.last
    assert indexed(ROWS).code == 0


@pytest.mark.parametrize("late", [[], ["--late"]])
def test_chunks_have_exact_offsets_and_those_of_a_shorter_text_go(indexed: Indexed, late: list[str]):
    text = "  The bank raised.\n\n The river rose.  银行提高了利率。 Rates fell again."
    indexed([("a", text, "x"), ("b", "One more.", "x")], "--chunk", "sentences", *late, method="echo")
    rows = indexed.rows
    assert all(text[row["start"] : row["end"]] == row["text"] for id, row in rows.items() if row["doc"] == "a")
    assert len([row for row in rows.values() if row["doc"] == "a"]) >= 3 and "b#0" in rows
    ended = indexed([("a", "The bank raised.", "x")], "--chunk", "sentences", *late, method="echo")
    assert "deleted" in ended.last and set(indexed.rows) == {"a#0", "b#0"}


def test_the_same_file_of_any_types_is_known_again(run: Run, gpt2: Path, tmp_path: Path):
    columns = {"text": ["a bank", "river"], "l": [[1], [2, 3]], "d": pa.array(["x", "y"]).dictionary_encode(),
               "t": pa.array([1, 2], pa.timestamp("us")), "m": [{"a": 1}, {"a": None}], "b": [b"x", None],
               "v": pa.array(["x", "y"], pa.large_string()), "f": pa.array([1, 2.5], pa.float32())}  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    given = ("index", tmp_path / "a", "-m", gpt2, "-i", tmp_path / "t.parquet", "--keep", "l,d,t,m,b,v,f")
    assert run(*given).code == 0
    assert "0 embedded, 2 known" in run(*given).last


def test_nothing_is_left_of_an_empty_input(run: Run, gpt2: Path, tmp_path: Path):
    (tmp_path / "t.csv").write_text("id,text\n")
    ended = run("index", tmp_path / "a", "-m", gpt2, "-i", tmp_path / "t.csv", "--id", "id")
    assert ended.code == 2 and ended.last == f"error: the input is empty: {tmp_path / 'a'} is not made"
    assert not (tmp_path / "a").exists()
