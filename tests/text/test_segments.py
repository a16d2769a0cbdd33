"""A text as the model reads it."""

from afterword.text.segments import WORTH, Segment, TokenizedText


def test_the_size_counts_every_segment() -> None:
    full, chunk = Segment([1, 2, 3], ((0, 3),), pooled=False), Segment([1, 2], ((0, 2),), part=2 / 3, final=False)
    assert TokenizedText((full, chunk), kept=3, total=5).size == 5


def test_a_lead_is_what_a_text_begins_with_before_it_goes_on() -> None:
    def prefix_of(ids: list[int]) -> int:
        return TokenizedText((Segment(ids, ((0, len(ids)),)),)).with_shared_prefix([7, 8]).segments[0].prefix

    assert [prefix_of(ids) for ids in ([7, 8, 9], [7, 8], [7], [7, 9, 8], [1, 7, 8])] == [2, 0, 0, 0, 0]
    assert prefix_of([7, 8, *range(WORTH * 2 - 2)]) == 2 and prefix_of([7, 8, *range(WORTH * 2 - 1)]) == 0
