"""A text as the model reads it."""

from afterword.writing import Segment, Writing


def test_the_size_counts_every_segment() -> None:
    full, chunk = Segment([1, 2, 3], ((0, 3),), pooled=False), Segment([1, 2], ((0, 2),), part=2 / 3, final=False)
    assert Writing((full, chunk), kept=3, total=5).size == 5
