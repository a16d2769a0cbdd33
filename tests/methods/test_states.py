"""States as means of layers."""

import pytest
import torch

from afterword.backbone.backbone import Trace
from afterword.backbone.facts import LAST, TABLE
from afterword.errors import MethodError, NoSuchHead
from afterword.methods.states import States


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        ("last", (LAST,)),
        ("first_last", (0, LAST)),
        ("static", (TABLE,)),
        ("layer:3", (3,)),
        ("layer:-1+0", (LAST, 0)),
        ("normed:3", ("normed:3",)),
    ],
)
def test_names_and_numbers(kind, layers) -> None:
    assert States(kind).layers == layers


@pytest.mark.parametrize(
    "kind", ["", "first", "layer", "layer:", "layer:a", "layer:1+", "layers:1", "normed:-1", "normed:0+1"]
)
def test_what_names_no_layer(kind) -> None:
    with pytest.raises(MethodError, match="states="):
        States(kind)


def test_a_layer_that_is_not_there() -> None:
    States("layer:4").check(4)
    States("layer:-5").check(4)
    States("normed:4").check(4)
    for kind in ("layer:5", "layer:-6", "normed:5"):
        with pytest.raises(NoSuchHead, match="0 to 4"):
            States(kind).check(4)


def test_the_mean_of_layers() -> None:
    trace = Trace({0: torch.tensor([[1.0]]), LAST: torch.tensor([[4.0]])})
    assert States("first_last").mean(trace).tolist() == [[2.5]]
    assert States().mean(trace).tolist() == [[4.0]]


def test_a_number_is_no_name() -> None:
    with pytest.raises(MethodError, match="states=1: choose one of"):
        States(1)  # type: ignore[arg-type]
