"""Every colour can be seen on its page, and every text can be read."""

import pytest

from afterword.errors import InputError
from afterword.plots.colours import DARK, LEGIBLE, LIGHT, Page, contrast, luminance, readable, text_on


@pytest.mark.parametrize("page", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_are_seen_and_texts_are_read(page: Page):
    assert min(contrast(text, page.ground) for text in (page.ink, page.muted)) >= LEGIBLE
    assert min(contrast(line, page.ground) for line in page.series) >= 3
    assert min(contrast(readable(line, page), page.ground) for line in page.series) >= LEGIBLE
    assert readable(page.series[0], page) == page.series[0]  # a colour that can be read stays as it is


def test_text_is_legible_on_any_grey():
    greys = [f"#{v:02x}{v:02x}{v:02x}" for v in range(256)]
    assert min(contrast(text_on(grey), grey) for grey in greys) >= LEGIBLE
    assert luminance("#000000") == 0


def test_a_page_whose_ink_cannot_be_read_is_refused():
    with pytest.raises(InputError, match="#eeeeee on #ffffff cannot be read"):
        readable("#ffff00", Page("#ffffff", "#eeeeee", "#eeeeee", "#eeeeee", ("#ffff00",)))
