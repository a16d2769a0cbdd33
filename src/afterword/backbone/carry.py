"""Carry a state back to a placeholder between the layers of a model (Token Prepending, Fu et al. 2025)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from ..errors import MethodError, UnsupportedModel
from .attention_masks import Plan, current
from .bidirectional import Sight
from .two_streams import Stack


@contextmanager
def carrying(stack: Stack, sight: Sight, plan: Plan, carried: Tensor | None) -> Iterator[None]:
    """Before each layer of the sight's range, the state of each placeholder becomes that of its text's last token.

    Args:
        stack: the model's layers.
        sight: says in which of them.
        plan: of the running forward.
        carried: indices of the placeholders, and of the last token of each one's segment (2, S).

    Raises:
        MethodError: the batch holds no placeholder.
        UnsupportedModel: the model's layers take no single state of each token.
    """
    if carried is None:
        raise MethodError("no text of the batch holds the placeholder <PST>, to which a state could be carried")
    slots, sources = carried
    tokens = sum(g.segments * g.length for g in plan.groups)

    def carry(_: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
        if current() is not plan:  # another thread's forward, perhaps while the hook is removed: then without kwargs
            return None
        kwargs = rest[0]
        states: Tensor = args[0] if args else kwargs["hidden_states"]
        if states.shape[:-1].numel() != tokens:
            raise UnsupportedModel(f"its layers take states of shape {tuple(states.shape)}, not one for each token")
        flat = states.reshape(tokens, -1)
        moved = flat.index_copy(0, slots, flat.index_select(0, sources)).view(states.shape)
        return ((moved, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": moved})

    with ExitStack() as hooks:
        for i in sight.carries(len(stack.layers)):
            hooks.enter_context(stack.layers[i].register_forward_pre_hook(carry, with_kwargs=True))
        yield
