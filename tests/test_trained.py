"""The small model in the package."""

import json

import pytest
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, logging

from afterword.backbone.model_source import PACKAGED


def test_the_package_has_one_small_model_with_a_card():
    (folder,) = PACKAGED.iterdir()
    assert folder.name == "afterword-mini"
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 14e6
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
    card = (folder / "README.md").read_text()
    assert "cc-by-sa" in card.lower().replace(" ", "-") and "recipes/" in card


def test_transformers_opens_it_without_a_warning(capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder):
    before = logging.get_verbosity()
    logging.set_verbosity_warning()
    try:
        for kind in (AutoModel, AutoModelForCausalLM, AutoTokenizer):
            kind.from_pretrained(PACKAGED / "afterword-mini")
    finally:
        logging.set_verbosity(before)
    assert capfd.readouterr() == ("", "") and not recwarn.list
