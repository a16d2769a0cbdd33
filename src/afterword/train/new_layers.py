"""New layers after a model's last one, with their own weights: the "addition" of BeLLM's Table 4."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from torch import nn

from ..backbone.attention import NAME
from ..backbone.backbone import Backbone
from ..backbone.self_check import check
from ..errors import UnsupportedModel

COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")


def append(backbone: Backbone, count: int, fresh: bool = False) -> Backbone:
    """A copy of a model with new layers appended; its remaining weights are those of the model.

    Source: BeLLM, Table 4. The last `count` layers of the result are the new ones: `Sight(last=count)` makes them
    bidirectional. They come before the final norm.

    Args:
        backbone: the model; it is not changed.
        count: number of new layers.
        fresh: initialise the new layers at random, as the model's class does; otherwise as copies of the last layers,
            in order.

    Raises:
        UnsupportedModel: the layers are not in a list, there are too few to copy, or the model's class cannot be built
            from its configuration.
    """
    model: Any = backbone.model
    path, old = path_of_layers(backbone), len(backbone.modules)
    if not fresh and count > old:
        raise UnsupportedModel(f"{count} layers cannot be copied from the {old} that there are: start them fresh")
    new = re.compile(rf"{re.escape(path)}\.({'|'.join(str(i) for i in range(old, old + count))})\.")
    try:
        grown: Any = type(model)(longer(model.config, old, count)).to(model.device, backbone.dtype)
        lacks = grown.load_state_dict(model.state_dict(), strict=False)
        if lacks.unexpected_keys or not all(new.match(name) for name in lacks.missing_keys):
            raise ValueError("its class creates more weights than these")
        layers = grown.get_submodule(path)
        for i in () if fresh else range(count):
            layers[old + i].load_state_dict(layers[old - count + i].state_dict())
    except (RuntimeError, TypeError, ValueError) as e:
        reason = str(e).splitlines()[0]
        raise UnsupportedModel(f"{backbone.facts.kind} cannot have new layers after its last: {reason:.160}") from None
    return check(grown.eval(), backbone.tokenizer)


def path_of_layers(backbone: Backbone) -> str:
    """The name of the module list that holds a model's layers.

    Raises:
        UnsupportedModel: the layers are not in a module list.
    """
    try:
        first = backbone.stack.layers[0]
    except UnsupportedModel:
        kind = backbone.facts.kind
        raise UnsupportedModel(f"{kind} cannot have new layers after its last: no list holds its layers") from None
    named: Iterator[tuple[str, Any]] = backbone.model.named_modules()
    return next(name for name, m in named if isinstance(m, nn.ModuleList) and len(m) and m[0] is first)


def longer(config: Any, old: int, count: int) -> Any:
    """A configuration with `count` more layers; its per-layer lists repeat their last `count` values for them."""
    config = copy.deepcopy(config)
    for name, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == old and name != "architectures":
            setattr(config, name, value + (value * count)[-count:])
    name = next(n for n in COUNTS if isinstance(getattr(config, n, None), int))
    setattr(config, name, old + count)
    config._attn_implementation = NAME
    return config
