import pytest

from afterword.backbone.facts import Facts, layer_numbers
from afterword.errors import NoSuchHead


def test_states_are_those_of_all_layers_attention_is_that_of_some():
    assert Facts("lfm2", layers=2, heads=4, width=64, depth=3).states == 3
    assert Facts("llama", layers=2, heads=4, width=64).states == 2


def test_layers_by_number() -> None:
    assert layer_numbers("attention:all", 3) == {0, 1, 2}
    assert layer_numbers("values:upper", 3) == {1, 2}
    assert layer_numbers("values:-1+0", 3) == {0, 2}
    for layer, layers in (("values:3", 3), ("attention:-4", 3), ("values:all", 0)):
        with pytest.raises(NoSuchHead, match=f"states='{layer}'"):
            layer_numbers(layer, layers)
