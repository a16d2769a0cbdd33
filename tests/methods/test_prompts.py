"""Prompts and bidirectional layers: defaults, and what changes nothing."""

import warnings

import pytest
import torch

from afterword import Encoder, bellm, prompt
from afterword.errors import MethodError
from afterword.methods import token_prepending
from afterword.methods.serialize import from_json, parse_method, to_json
from afterword.methods.templates import TEMPLATES


def test_what_changes_nothing_warns() -> None:
    with pytest.warns(UserWarning, match="equals the causal model"):
        bellm(last=1, pool="last")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bellm()
        bellm(last=2, pool="last")
        bellm(last=1, pool="last", couple="add")


def test_templates_have_a_place_for_the_text() -> None:
    assert all("{text}" in t for t in TEMPLATES.values())
    assert prompt("promptbert").weigh.pool == "mask"
    assert prompt("eol").weigh.pool == "last"


def test_a_template_comes_with_the_layer_that_it_was_published_with() -> None:
    """Pretended CoT and Knowledge Enhancement read hidden_states[-2]; who names states gets those."""
    assert [prompt(name).states.kind for name in ("eol", "cot", "ke", "ponte")] == [
        "last", "layer:-2", "layer:-2", "last",
    ]  # fmt: skip
    assert prompt("cot", states="last") == prompt(TEMPLATES["cot"])
    assert parse_method("prompt:template=ke") == prompt("ke")
    assert to_json(prompt())["states"] == "last"


def test_pretended_cot_is_the_last_tokens_state_before_the_norm() -> None:
    """The authors' code: hidden_states[-2][:, -1] of the whole string (ZBWpro/PretCoTandKE@ad3a799)."""
    encoder = Encoder.load("afterword-mini", prompt("cot", variant="released"))
    own = encoder.backbone
    text = 'After thinking step by step , this sentence : "A \'bank\'." means in one word:"'
    ids = own.tokenizer.hf(text, return_tensors="pt")
    own.model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            states = own.model(**ids, output_hidden_states=True).hidden_states[-2][0, -1].numpy()
    finally:
        own.model.set_attn_implementation("afterword")
    assert abs(encoder.encode('A "bank"?') - states).max() <= 2e-5 * abs(states).max()


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("eol", 'This sentence : <PST> "{text}" means in one word:"'),
        ("bellm", 'The representative word for sentence <PST> {text} is:"'),
        ("{text}", "<PST> {text}"),
        ("a:“{text}” in", "a: <PST> “{text}” in"),
        ("<PST> in front: {text}", "<PST> in front: {text}"),
    ],
)
def test_the_placeholder_stands_right_in_front_of_the_text(template: str, written: str):
    assert token_prepending(template).layout.template == written


def test_every_named_template_has_room_for_it():
    assert all(token_prepending(name, chat="[ANSWER]" in text).layout.slots == 1 for name, text in TEMPLATES.items())


def test_what_is_read_and_written():
    method = parse_method("token_prepending:start=2,stop=4,states=layer:3,variant=released")
    assert method.sight.carry == (2, 4) and method.layout.punctuate == "all"
    assert method.name == "token_prepending eol start 2 stop 4"
    assert to_json(method)["sight"]["carry"] == [2, 4] and from_json(to_json(method)) == method
    assert "carry" not in to_json(bellm())["sight"]
    with pytest.raises(MethodError, match=r"carry=\[4, 2\]"):
        token_prepending(start=4, stop=2)
