"""Find where each attention block's output is computed: the product with W_O, before its norm and the residual.

Families build attention in different ways: W_O may be in the module that calls our attention function (Llama), behind
it (BERT), or before a norm in the same module (ALBERT). So a few tokens are run, and the order of products tells: it is
the last of those in a row that follow the attention in its own module, else the first that follows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..errors import AttentionNotSeen
from ..text.batch import Batch, lay
from ..text.segments import Segment, TokenizedText
from .attention_masks import current
from .facts import Layer
from .packed_linear import plain_linears

if TYPE_CHECKING:
    from .backbone import Backbone

FEW = 5  # tokens; not a number of heads, so that square matrices are those of attention


@dataclass
class Known:
    """What was found about the insides of a model's layers: names of W_O, and widths of kinds of states."""

    blocks: tuple[str, ...] = ()
    widths: dict[Layer, int] = field(default_factory=dict)


def few_tokens(backbone: Backbone) -> Batch:
    """A text of a few tokens."""
    ids = [(13 * i + 3) % backbone.vocabulary_size for i in range(min(FEW, backbone.facts.max_length or FEW))]
    return lay([TokenizedText((Segment(ids, ((0, len(ids)),)),))], backbone.device)


def find_blocks(backbone: Backbone) -> tuple[str, ...]:
    """The names of the modules that compute W_O in each layer with attention, in order.

    Args:
        backbone: the model.

    Raises:
        AttentionNotSeen: they cannot be told apart.
    """
    model, layers = backbone.model, backbone.facts.layers
    with torch.no_grad(), plain_linears(), _Products(model) as products:
        rows, width = backbone.last(few_tokens(backbone)).shape
    found: list[str] = []
    for attended in range(1, layers + 1):
        behind = [product for product in products.seen if product.attended == attended]
        own = list(takewhile(lambda product: product.own, behind))
        fits = [p for p in behind[:1] if p.width == width]  # outside the module, where it might be a router's
        found += [p.layer for p in own[-1:] or fits if p.rows == rows and not model.get_submodule(p.layer)._modules]
    if not found or len(found) != layers or products.attended != layers:
        raise AttentionNotSeen(
            f"the outputs of {backbone.facts.kind}'s {layers} layers with attention cannot be told apart: use a hidden "
            "state, states='layer:k'"
        )
    return tuple(_whole(model, name) for name in found)


def _whole(model: nn.Module, name: str) -> str:
    """The name of a layer with what is wrapped around it: an adapter of PEFT's, or a clipping of its output."""
    parts = name.split(".")
    outer = [".".join(parts[:end]) for end in range(1, len(parts))]
    adapted = next((path for path in outer if hasattr(model.get_submodule(path), "base_layer")), name)
    return outer[-1] if adapted == name and outer and len(model.get_submodule(outer[-1])._modules) == 1 else adapted


class _Product(NamedTuple):
    """A product with a layer's matrix: the attentions before it, and whether it is in the module of the last one."""

    attended: int
    own: bool
    rows: int
    width: int
    layer: str


class _Products(TorchFunctionMode):
    """Sees a model's products with its matrices, and which attention they follow; its own is told by the softmax.

    A product whose input is that of an earlier one, as a gate's is that of the queries, is left out.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.layers = {id(p): name.rpartition(".")[0] for name, p in model.named_parameters() if p.dim() > 1}
        self.names = {id(module): name for name, module in model.named_modules()}
        self.seen: list[_Product] = []
        self.inputs: list[Tensor] = []
        self.attended = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch's."""
        out, plan = function(*args, **(kwargs or {})), current()
        if plan is not None:
            self.attended = plan.calls
        elif "softmax" in getattr(function, "__name__", "") and out.dim() > 2 and out.shape[-1] == out.shape[-2]:
            self.attended += 1
        layer = next((self.layers[id(a)] for a in args[1:] if id(a) in self.layers), None)
        if layer is not None and isinstance(out, Tensor) and not any(args[0] is x for x in self.inputs):
            own = plan is not None and bool(plan.order) and layer.startswith(self.names[plan.order[-1]] + ".")
            self.seen.append(_Product(self.attended, own, out[..., 0].numel(), out.shape[-1], layer))
            self.inputs.append(args[0])
        elif args and id(args[0]) in self.layers and isinstance(out, Tensor) and out.numel() == args[0].numel():
            self.layers[id(out)] = self.layers[id(args[0])]  # the matrix transposed, or of another type
            self.inputs.append(out)
        return out
