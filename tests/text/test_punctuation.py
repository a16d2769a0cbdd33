import pytest

from afterword.text.punctuation import punctuated


@pytest.mark.parametrize(
    ("text", "stop", "everything"),
    [
        ("", "", ""),
        ("ab", "ab.", "ab."),
        ("ab.", "ab.", "ab."),
        ("ab?", "ab?", "ab."),
        ('a "b"', 'a "b"', "a 'b'"),
        ('a "b"?', 'a "b"?', "a 'b'."),
        ("ab!", "ab!.", "ab!."),
    ],
)
def test_punctuation_of_the_authors(text: str, stop: str, everything: str) -> None:
    assert (punctuated(text, "stop"), punctuated(text, "all")) == (stop, everything)
