"""New layers behind a model's last one, with weights of their own: the "addition" of BeLLM's Table 4."""

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
    """A model that has more layers than another, and otherwise its weights.

    Source: BeLLM, Table 4. The last `count` layers of the result are the new ones: let a sight name them. They stand
    in front of the last norm, as layers do.

    Args:
        backbone: the model; it stays as it is.
        count: of new layers.
        fresh: they start with the family's random weights; otherwise as copies of the last layers, in order.

    Raises:
        UnsupportedModel: the layers are no list, there are too few to copy, or the family cannot be built anew.
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
            raise ValueError("it has other weights besides")
        layers = grown.get_submodule(path)
        for i in () if fresh else range(count):
            layers[old + i].load_state_dict(layers[old - count + i].state_dict())
    except (RuntimeError, TypeError, ValueError) as e:
        reason = str(e).splitlines()[0]
        raise UnsupportedModel(f"{backbone.facts.kind} cannot have new layers behind its last: {reason:.160}") from None
    return check(grown.eval(), backbone.tokenizer)


def path_of_layers(backbone: Backbone) -> str:
    """The name of the list that holds a model's layers.

    Raises:
        UnsupportedModel: no list holds them one by one.
    """
    try:
        first = backbone.stack.layers[0]
    except UnsupportedModel:
        kind = backbone.facts.kind
        raise UnsupportedModel(f"{kind} cannot have new layers behind its last: no list holds its layers") from None
    named: Iterator[tuple[str, Any]] = backbone.model.named_modules()
    return next(name for name, m in named if isinstance(m, nn.ModuleList) and len(m) and m[0] is first)


def longer(config: Any, old: int, count: int) -> Any:
    """A model's configuration with more layers; what it says of each of the last ones it says again of the new ones."""
    config = copy.deepcopy(config)
    for name, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == old and name != "architectures":
            setattr(config, name, value + (value * count)[-count:])
    name = next(n for n in COUNTS if isinstance(getattr(config, n, None), int))
    setattr(config, name, old + count)
    config._attn_implementation = NAME
    return config
