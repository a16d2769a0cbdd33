"""Named templates."""

import pytest

from afterword.methods.templates import TEMPLATES
from afterword.text.layout import Layout


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_has_a_place_for_the_text(name: str) -> None:
    layout = Layout(TEMPLATES[name], chat=name.startswith("promptreps"))
    assert layout.total_copies == (2 if name.startswith("rewrite") else 1)
    assert ("condition" in layout.fields) == (name in ("csts", "ponte"))
