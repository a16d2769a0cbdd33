"""How much at a time; what was cut is said once."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from afterword import Encoder, classical
from afterword.encode.limits import Limits, Losses
from afterword.errors import InputError, TextsUnknown, TooLong
from afterword.text.segments import Segment, TokenizedText


@pytest.mark.parametrize(
    "options", [{"max_length": 0}, {"batch_size": -1}, {"batch_tokens": 1.5}, {"on_long": "cut"}, {"on_empty": "skip"}]
)
def test_limits_that_make_no_sense(options: dict) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Limits(**options)


def test_what_was_cut_is_counted_and_said_once() -> None:
    limits, cuts = Limits(max_length=5), Losses()
    cuts.note([TokenizedText((), kept=5, total=9), TokenizedText((), kept=3, total=3)], limits)
    cuts.note([TokenizedText((), kept=5, total=7)], limits)
    with pytest.warns(UserWarning, match=r"2 of 3 texts.*max_length=5 \(median 3, max 4 tokens dropped\)"):
        cuts.warn(limits)


def test_texts_that_are_mostly_unknown_are_counted() -> None:
    def text(*ids: int) -> TokenizedText:
        return TokenizedText((Segment([1, *ids, 2], ((1, 1 + len(ids)),)),), kept=len(ids), total=len(ids))

    losses = Losses(unknown_id=9)
    losses.note([text(9, 9), text(9, 5), text(9, 5, 5), text(), text(5)], Limits(), [[0, 4], [1], [2], [3], [5]])
    with pytest.warns(TextsUnknown, match="^3 texts"):
        losses.warn(Limits(on_long="error"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses.warn(Limits(on_long="ignore"))
        Losses(texts=5, unknown_id=9).warn(Limits())


def test_every_way_of_embedding_warns_of_unknown_texts(minilm: Path) -> None:
    encoder, text = Encoder.load(minilm, classical()), "👍 👍 a"
    ways: list[Callable[[], object]] = [
        lambda: encoder.encode([text, "a"]),
        lambda: encoder.encode_many([text], [classical(), classical("last")]),
        lambda: encoder.encode_words([text], [["a"]]),
        lambda: encoder.encode_tokens([text]),
        lambda: encoder.encode_chunks([text], "sentences"),
        lambda: encoder.encode_chunks([text], "sentences", late=False),
    ]
    for way in ways:
        with pytest.warns(TextsUnknown, match="^1 text is mostly"):
            way()


def test_refusal_names_the_text() -> None:
    both = [TokenizedText((), kept=3, total=3), TokenizedText((), kept=5, total=9)]
    with pytest.raises(TooLong, match="text 8 has 9 tokens"):
        Losses().note(both, Limits(5, on_long="error"), [[0, 1], [8, 9]])


def test_a_text_that_is_there_three_times_is_counted_three_times() -> None:
    cuts = Losses()
    cuts.note([TokenizedText((), kept=5, total=9), TokenizedText((), kept=3, total=3)], Limits(5), [[0, 2, 3], [1]])
    assert cuts.lost == [4, 4, 4] and cuts.texts == 4
