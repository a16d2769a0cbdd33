"""What the verbs of ``analyse`` share."""

from pathlib import Path

import pytest

from afterword.cli.option_groups import Texts, as_text, distinct, short_name
from afterword.errors import BadRow


def test_texts_of_pairs_are_those_of_both_sides_each_once(tmp_path: Path):
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2\na,b\nb,c\n")
    assert Texts(pairs=tmp_path / "pairs.csv").read() == ["a", "b", "c"]


def test_a_row_without_a_text_is_refused_by_its_line(tmp_path: Path):
    (tmp_path / "texts.jsonl").write_text('{"text": "a"}\n{"text": 1}\n')
    with pytest.raises(BadRow, match=":2"):
        Texts(tmp_path / "texts.jsonl").read()
    (tmp_path / "pairs.jsonl").write_text('{"sentence1": "a", "sentence2": " "}\n')
    with pytest.raises(BadRow, match=":1: 'sentence2' is blank"):
        Texts(pairs=tmp_path / "pairs.jsonl").read()


def test_names_and_json():
    assert short_name("some/folder/gpt2/") == "gpt2"
    assert short_name("a/checkpoint-5") == "a/checkpoint-5" and short_name("model") == "model"
    given = ["a/gpt2", "b/gpt2", "c/llama"]
    assert distinct(given, short_name) == {"a/gpt2": "a/gpt2", "b/gpt2": "b/gpt2", "c/llama": "llama"}
    assert as_text([{"a": "ä"}]) == '[{"a": "ä"}]' and as_text({"a": 1}) == '{\n  "a": 1\n}'
