from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.eager import ditto_sum, loaded, reba_mean
from tests.examples import examples
from tests.judge import EXACT, difference

from afterword import Encoder, bellm, classical, ditto, reba
from afterword.backbone.bidirectional import Sight
from afterword.backbone.facts import layer_numbers
from afterword.errors import MethodError, NoSuchHead
from afterword.methods import Method

texts_of_ids = st.lists(st.lists(st.integers(8, 260), min_size=1, max_size=20), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sight")


def test_which_layers_differ():
    assert Sight(last=2).resolve(5) == {3, 4}
    assert Sight(layers=(4, 1, 1)).resolve(5) == {1, 4} and Sight(layers=(4, 1, 1)) == Sight(layers=(1, 4))
    assert not Sight() and Sight(couple="angle031") and Sight(last=2, couple="add").first(5) == 3
    assert Sight(carry=(1,)).carries(32) == range(1, 7) and Sight(carry=(1,)).carries(3) == range(1, 3)
    assert Sight(3, couple="angle031", temperature=0.5).simplified(3) == Sight(layers=(0, 1, 2), temperature=0.5)


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"couple": "sum"}, "sum"),
        ({"last": -1}, "last=-1"),
        ({"temperature": 0}, "temperature=0"),
        ({"carry": (3, 3)}, r"carry=\[3, 3\]"),
        ({"last": 1, "couple": "add", "carry": (1, 2)}, "couple='add'"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], value: str):
    with pytest.raises(MethodError, match=value):
        Sight(**options)


def test_layers_that_the_model_does_not_have_are_refused():
    for resolve in (
        lambda: Sight(last=4).resolve(3),
        lambda: Sight(layers=(3,)).resolve(3),
        lambda: Sight(carry=(1, 4)).carries(3),
        lambda: Sight(carry=(1,)).carries(1),
    ):
        with pytest.raises(NoSuchHead):
            resolve()
    with pytest.raises(MethodError, match="turning-point"):
        Sight(last="auto").resolve(3)
    with pytest.raises(MethodError, match="couple='add'"):
        Sight(layers=(0, 2), couple="add").first(3)


@pytest.mark.parametrize("kind", ["mistral", "gemma2"])
@examples(5)
@given(texts=texts_of_ids, last=st.integers(1, 3))
def test_a_window_is_dropped_in_those_layers(models: Path, kind: str, texts: list[list[int]], last: int) -> None:
    """The authors' code: no mask at all in the last layers. The window is 6 tokens."""
    eager, own = loaded(models, kind)

    def no_mask(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "attention_mask": torch.zeros_like(kwargs["attention_mask"])}

    layers = eager.attention_layers(eager.model)[-last:]
    wanted = []
    for text in texts:
        hooks = [layer.register_forward_pre_hook(no_mask, with_kwargs=True) for layer in layers]
        with torch.no_grad():
            ids = torch.tensor([[*eager.prefix, *text]])
            wanted.append(eager.model(input_ids=ids, use_cache=False).last_hidden_state[0, 1:].mean(0).numpy())
        for hook in hooks:
            hook.remove()
    dropped = bellm(last, template=None, window="drop")
    assert difference(Encoder(own, dropped).encode(texts), np.stack(wanted)) < EXACT
    kept = Encoder(own, bellm(last, template=None)).encode(texts)
    wide = [i for i, text in enumerate(texts) if len(text) > 8]
    assert all(np.abs(kept[i] - wanted[i]).max() > 1e-4 for i in wide), "and within a window they are others"


@pytest.mark.filterwarnings("ignore:ditto on llama")
@pytest.mark.parametrize("kind", ["bert", "llama"])
@examples(5)
@given(texts=texts_of_ids, tau=st.floats(0.3, 2))
def test_a_temperature_is_that_of_every_layer(models: Path, kind: str, texts: list[list[int]], tau: float) -> None:
    """softmax(q k^T / (tau sqrt(d))), and ReBA and Ditto read that attention."""
    eager, own = loaded(models, kind)
    layers = [m for m in eager.model.modules() if hasattr(m, "scaling")]
    for layer in layers:
        layer.scaling /= tau
    mean, some = [eager.see(t).last.mean(0).numpy() for t in texts], texts[:1]
    read = [f(eager, some[0]).numpy()[None] for f in (reba_mean, ditto_sum)]
    for layer in layers:
        layer.scaling *= tau
    encoder = Encoder(own, classical(temperature=tau))
    got = encoder.encode(texts)
    assert difference(got, np.stack(mean)) < EXACT and difference(got[:1], encoder.encode(some)) < EXACT
    for method, wanted in zip((reba(pool="mean"), ditto((1, 2))), read, strict=True):
        hot = Method(method.layout, method.states, method.weigh, Sight(temperature=tau))
        assert difference(Encoder(own, hot).encode(some), wanted) < EXACT


def test_layers_by_number() -> None:
    assert layer_numbers("attention:all", 3) == {0, 1, 2}
    assert layer_numbers("values:upper", 3) == {1, 2}
    assert layer_numbers("values:-1+0", 3) == {0, 2}
    for layer, layers in (("values:3", 3), ("attention:-4", 3), ("values:all", 0)):
        with pytest.raises(NoSuchHead, match=f"states='{layer}'"):
            layer_numbers(layer, layers)
