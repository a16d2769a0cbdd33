import pytest
from tests.tiny import tiny

from afterword import Encoder, classical, reba
from afterword.backbone.backbone import Backbone
from afterword.backbone.loading import load_backbone
from afterword.errors import InputError, TooLong, WordNotFound

TEXTS = ["the bank of the river", "a bank", "money in the bank of the town", "nothing", "bank by bank"]
WORDS = [["bank", "river"], ["bank"], ["bank"], [], [("bank", 1), "by"]]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> Backbone:
    return load_backbone(tiny("llama", tmp_path_factory.mktemp("llama")))


def test_a_word_that_is_nowhere_is_seen_before_any_text_is_run(backbone: Backbone, monkeypatch) -> None:
    monkeypatch.setattr("afterword.encode.spans.WINDOW", 1)
    done: list[int] = []
    with pytest.raises(WordNotFound, match=r"'shore' .* in text 4"):
        Encoder(backbone, classical()).encode_words(TEXTS, [*WORDS[:4], ["shore"]], show_progress_bar=done.append)
    assert not done


def test_errors_name_a_text_of_a_later_window_by_its_own_number(backbone: Backbone, monkeypatch) -> None:
    monkeypatch.setattr("afterword.encode.spans.WINDOW", 1)
    encoder = Encoder(backbone, classical(), max_length=12)
    with pytest.raises(WordNotFound, match="'river' of text 1 was cut off"):
        encoder.encode_words(["a bank", "a bank of the wide river"], ["bank", "river"])
    with pytest.raises(TooLong, match="text 1 has"):
        encoder.encode_words(["a bank", "bank of the wide river"], ["bank", "bank"], on_long="error")


def test_prompts_are_those_of_encode(backbone: Backbone) -> None:
    asked = Encoder(backbone, reba(), prompts={"about": "it is about "}, default_prompt_name="about")
    bare = Encoder(backbone, reba())
    by_default = asked.encode_words("the bank", ["bank"])
    assert (by_default == bare.encode_words("the bank", ["bank"], prompt="it is about ")).all()
    without = asked.encode_words("the bank", ["bank"], prompt="")
    assert (without == bare.encode_words("the bank", ["bank"])).all() and abs(without - by_default).max() > 1e-4
    with pytest.raises(InputError, match="'query'"):
        bare.encode_words("the bank", ["bank"], prompt_name="query")
