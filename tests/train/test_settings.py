from typing import Any

import pytest

from afterword import bellm, prompt
from afterword.errors import InputError
from afterword.train.settings import Settings


def test_the_papers_values_are_the_defaults():
    paper = {"rank": 32, "alpha": 32, "dropout": 0.1, "learning_rate": 2e-4, "temperature": 0.05, "seed": 42}
    assert {name: getattr(Settings(), name) for name in paper} == paper
    assert Settings().targets == () and Settings().lora and Settings().loss == "ranking"


def test_they_come_back_from_json():
    for settings in (
        Settings(),
        Settings(method=bellm(last=2, couple="add"), weights=(0, 20, 1), prompts={"anchor": "a: "}, warmup=7, steps=3),
        Settings(method=prompt("{condition} {text}"), rank=0, targets=("q_proj",), matryoshka=(64, 8)),
    ):
        assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rank": -1}, "rank=-1: give 0 or more"),
        ({"batch_size": 0}, "batch_size=0: give 1 or more"),
        ({"every": 0}, "every=0: give 1 or more"),
        ({"temperature": 0}, "temperature=0: give more than 0"),
        ({"learning_rate": -1e-4}, "learning_rate=-0.0001: give more than 0"),
        ({"steps": 0}, "steps=0: give 1 or more"),
        ({"dropout": 1.0}, "dropout=1.0: give 0 or more, less than 1"),
        ({"four_bit": True, "rank": 0}, "4 bits are frozen: give a LoRA rank"),
        ({"four_bit": True, "added": 1}, "new layers"),
        ({"prompt": "a", "prompts": {"anchor": "b"}}, "not both"),
        ({"loss": "mse"}, "loss='mse': choose one of ranking, cached_ranking, angle, cosent, released"),
        ({"precision": "float16"}, "precision='float16': choose one of float32, bfloat16"),
        ({"warmup": -1}, "warmup=-1: give 0 or more"),
        ({"warmup": float("nan")}, "warmup=nan: give 0 or more"),
        ({"seed": -1}, "seed=-1: give 0 or more"),
        ({"max_length": 0}, "max_length=0: give 1 or more"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str):
    with pytest.raises(InputError, match=said):
        Settings(**options)
