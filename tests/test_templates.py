"""Named templates."""

import pytest

from afterword.layout import Layout
from afterword.templates import TEMPLATES


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_has_a_place_for_the_text(name: str) -> None:
    layout = Layout(TEMPLATES[name])
    assert layout.total_copies == (2 if name == "rewrite" else 1)
    assert ("condition" in layout.fields) == (name == "csts")
