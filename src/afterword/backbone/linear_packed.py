"""Run a model's linear layers with packed weights, each if the probe chose them for its shape.

``AFTERWORD_KERNELS=plain`` or ``packed`` forces one kernel for all layers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from ..errors import ModelError
from ..text.batch import Batch
from .filling import LANES, Filling, rounded_widths
from .free_memory import free_memory
from .linear_patching import FUSED, PackedLayer, Patch, is_linear, patched, shape_of, work
from .linear_probe import Shape, choose_kernel, circumstances, rows_of
from .linear_products import ROWS, Kernel, Products, forced, precision_lock, register_bfloat16, setting
from .model_lock import all_modules, first_weight

SHARE = 0.4  # the largest part of the free memory that packed weights may take
Given = tuple[str, dict[str, Kernel]]
LEAVES = frozenset(FUSED) | {"Linear", "Conv1D", "Dropout", "LayerNorm"}


@dataclass
class PackedModel:
    """The packed layers of a model, for one state of it.

    Attributes:
        modules: all its modules, in order.
        state: everything else that the choice of kernels depends on.
        layers: packed layers, by the identity of the layer.
        patched_modules: these layers, and the activations that are fused with them.
        filling: to how many rows a forward is padded with filler.
        circumstances: in which the kernels were chosen, from `linear_probe.circumstances`.
        kernels: the kernel of the linear layers of each shape, by the shape's name.
        watched: `IndependenceCheck.changes` when `watch` was called; None = not yet.
        tail: the layers that `skip_unread.find` returned; None = not called yet.
        tail_changes: `IndependenceCheck.changes` at that time.
    """

    modules: list[nn.Module]
    state: tuple[Any, ...]
    layers: dict[int, PackedLayer]
    patched_modules: list[nn.Module]
    filling: Filling = field(default_factory=Filling)
    circumstances: str = ""
    kernels: dict[str, Kernel] = field(default_factory=dict)
    watched: int | None = None
    tail: tuple[nn.Module, ...] | None = None
    tail_changes: int = 0

    def watch(self, run: Callable[[Batch], Tensor], few: Callable[[], Batch], changes: int) -> None:
        """Find the widths on which the filling depends with a forward of a few tokens: once, and after each change."""
        if self.modules and self.watched != changes:
            batch = few()
            widths = rounded_widths(partial(run, batch), self.filling.total(batch.tokens.numel()))
            self.filling, self.watched = replace(self.filling, widths=widths), changes

    def changed(self) -> list[PackedLayer]:
        """Packed layers whose weight has changed: another tensor, another version, or other elements in a sample."""
        changed = [layer for layer in self.layers.values() if not layer.untouched]
        if changed or not self.layers:
            return changed
        layers = list(self.layers.values())
        samples, copies = (_bits(torch.cat(part)) for part in ([t.sample for t in layers], [t.copy for t in layers]))
        if torch.equal(samples, copies):
            return []
        return [t for t in layers if not torch.equal(_bits(t.sample), _bits(t.copy))]


class PackedLinears:
    """Packed weights of a model's linear layers, used inside `fast`, and packed at their first use.

    If the only use of a layer's output is an activation, the two are fused, and the activation's module returns its
    input. A weight is packed again when it is another tensor, has another version, or differs in a sample of its
    elements. An edit of a few elements through ``weight.data`` may not be detected: call `drop` then.
    Several threads may be inside `fast` at once.

    Args:
        model: its ``nn.Linear`` and transformers' ``Conv1D`` layers are packed.
        products: the precision in which float32 matrices are multiplied.
        given: kernels to use in place of the probe's choice, and the circumstances that they are for.
    """

    def __init__(self, model: nn.Module, products: Products = "float32", given: Given | None = None) -> None:
        self.model = model
        self.products: Products = products
        self._given = given
        self.on = True
        """False: the layers run as they are, as in the self-check."""
        self._current: PackedModel | None = None
        self._alike: dict[tuple[Any, ...], str | None] = {}
        self._building = threading.RLock()
        if products == "bfloat16":
            register_bfloat16(self)

    def __getstate__(self) -> dict[str, Any]:
        """Copy neither packed weights nor locks."""
        return {"model": self.model, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Start without packed weights."""
        self.__init__(state["model"], *state["options"])  # type: ignore[misc]

    @property
    def options(self) -> tuple[Products, Given | None]:
        """What a copy must be made with to have the same bits: the products, and the kernels in use."""
        current = self._current
        return self.products, self._given if current is None else (current.circumstances, current.kernels)

    def kernels(self) -> dict[str, Kernel]:
        """The kernel of the linear layers of each shape, by the shape's name; {} where torch alone chooses.

        Weights are packed if they were not yet.
        """
        with precision_lock(), torch.no_grad():
            current = self._now(all_modules(self.model))
        return {} if current is None else dict(current.kernels)

    def follow(self, kernels: Mapping[str, str]) -> None:
        """Use these kernels, as `kernels` gave them in another process, and not those that the probe chooses here.

        They hold as long as the number of threads, the type of the weights and the settings stay. A shape that they do
        not name is probed. ``AFTERWORD_KERNELS``, a lack of memory or a torch without packed weights may forbid them:
        `kernels` tells which are used.
        """
        weight = first_weight(self.model)
        if weight is not None:
            known = {name: cast("Kernel", kernel) for name, kernel in kernels.items() if kernel in get_args(Kernel)}
            self._given = circumstances(weight.dtype, self.products), known
            self.drop()

    def usable(self) -> bool:
        """Whether some layer of the model runs with packed weights at present."""
        current = self._now(all_modules(self.model))
        return current is not None and bool(current.layers)

    def drop(self) -> None:
        """Drop all packed weights."""
        self._current = None

    @property
    def layers(self) -> list[PackedLayer]:
        """The packed layers at present."""
        return list(self._current.layers.values()) if self._current is not None else []

    @contextmanager
    def fast(self, modules: list[nn.Module] | None = None) -> Iterator[PackedModel]:
        """Patch the model's linear layers so that they run with packed weights; afterwards they are restored.

        Args:
            modules: all modules of the model, from `model_lock.all_modules`; None = call it here.

        Yields:
            The model's packed layers.
        """
        with precision_lock():
            current = self._now(modules or all_modules(self.model)) or PackedModel([], (), {}, [])
            if not current.layers:
                yield current
                return
            with patched(Patch(current.layers, self.products), current.patched_modules):
                yield current

    def _now(self, modules: list[nn.Module]) -> PackedModel | None:
        """The packed layers for the model's present state; None if it cannot have any."""
        if not self.on:
            return None
        weight = first_weight(self.model)
        if weight is None or weight.device.type != "cpu" or torch.is_grad_enabled() or self.model.training:
            self.drop()
            return None
        if weight.dtype not in (torch.float32, torch.bfloat16) or torch.is_autocast_enabled("cpu"):
            return None
        state = (weight.dtype, torch.get_num_threads(), setting(), forced())
        current = self._current
        if current is None or current.state != state or current.modules != modules or current.changed():
            with self._building:
                current = self._current = self._build(modules, state, current)
        return current

    def shapes(self) -> dict[Shape, int]:
        """The number of the model's linear layers of each shape."""
        counts: dict[Shape, int] = {}
        for module in dict.fromkeys(m for m in all_modules(self.model) if is_linear(m)):
            counts[shape_of(module)] = counts.get(shape_of(module), 0) + 1
        return counts

    def _build(self, modules: list[nn.Module], state: tuple[Any, ...], old: PackedModel | None) -> PackedModel:
        """A packed layer for each layer whose shape the probe chose packed weights for; unchanged ones are kept."""
        dtype = state[0]
        linears: list[Any] = [
            m for m in dict.fromkeys(modules) if is_linear(m) and m.weight.dtype == dtype and _on_cpu(m)
        ]
        here = circumstances(dtype, self.products)
        given = self._given[1] if self._given is not None and self._given[0] == here else {}
        kernels = {
            shape: choose_kernel(shape, dtype, self.products, given.get(shape.name))
            for shape in dict.fromkeys(map(shape_of, linears))
        }
        wanted = [m for m in linears if kernels[shape_of(m)] == "packed"]
        stale = set() if old is None else set(map(id, old.changed()))
        kept = {} if old is None else {id(t.module): t for t in old.layers.values() if id(t) not in stale}
        size = sum(int(m.weight.nbytes) for m in wanted if id(m) not in kept)
        if size >= SHARE * free_memory():
            if self.products != "float32":
                raise ModelError(
                    f"products={self.products!r} needs {size / 1e9:.1f} GB for packed weights, and at most "
                    f"{SHARE:.0%} of the free memory may go there: free some, or leave products='bfloat16' out"
                )
            return PackedModel(modules, state, {}, [], Filling(), here, {shape.name: "plain" for shape in kernels})
        layers = {id(m): kept.get(id(m)) or PackedLayer(m) for m in wanted}
        for layer in layers.values():
            layer.act = None
        acts = self._feeding(modules, layers)
        named = {shape.name: kernel for shape, kernel in kernels.items()}
        filling = Filling(self._rows(modules, kernels, dtype))
        return PackedModel(modules, state, layers, [*(t.module for t in layers.values()), *acts], filling, here, named)

    def _rows(self, modules: list[nn.Module], kernels: dict[Shape, Kernel], dtype: torch.dtype) -> int:
        """The rows per thread to a multiple of which a short forward is padded: the most that any layer needs.

        Fewer than `ROWS` only if the probe tried every product with a weight, and 8 rows of what any layer gives are
        whole vectors: activations round a remainder differently.
        """
        tried = {id(m.weight) for m in modules if is_linear(m) or isinstance(m, nn.Embedding)}
        if any(p.dim() > 1 and id(p) not in tried for p in self.model.parameters()):
            return ROWS
        if not kernels or any(8 * shape.outputs % LANES for shape in kernels):
            return ROWS
        return max(rows_of(shape, dtype, kernel, self.products) for shape, kernel in kernels.items())

    def _feeding(self, modules: list[nn.Module], layers: dict[int, PackedLayer]) -> list[nn.Module]:
        """Fuse layers with their activation; find the pairs by trying each kind of feed-forward block."""
        pairs: list[tuple[nn.Module, Any, Any]] = []
        for block in dict.fromkeys(modules):
            children = dict(block.named_children())
            acts = [c for c in children.values() if type(c).__name__ in FUSED]
            if len(acts) != 1 or any(type(c).__name__ not in LEAVES for c in children.values()):
                continue
            linears = [n for n, c in children.items() if id(c) in layers]
            options = tuple((k, v) for k, v in vars(block).items() if isinstance(v, bool | int | float | str))
            kind = (type(block), type(block).forward, options, type(acts[0]), work(acts[0]), *linears)
            if kind not in self._alike:
                self._alike[kind] = next(
                    (n for n in linears if self._same(block, layers[id(children[n])], acts[0])), None
                )
            name = self._alike[kind]
            if name in children and id(children[name]) in layers:
                pairs.append((block, children[name], acts[0]))
        times = [id(act) for _, _, act in pairs]
        alone = [pair for pair in pairs if times.count(id(pair[2])) == 1 and modules.count(pair[1]) == 1]
        for block, linear, act in alone:
            layers[id(linear)].fuse(block, act)
        return [act for _, _, act in alone]

    def _same(self, block: Any, layer: PackedLayer, act: Any) -> bool:
        """Whether the block's output stays the same if the activation is fused with the layer."""
        x = torch.randn(1, 5, shape_of(layer.module).inputs, generator=torch.Generator().manual_seed(0))
        x = x.to(layer.source.dtype)
        layer.fuse(block, act)
        try:
            expected = block(x)
            with patched(Patch({id(layer.module): layer}, self.products), [layer.module, act]) as patch:
                out = block(x)
                whole = patch.activated is None
        except Exception:  # a block that needs more arguments is left as it is
            return False
        finally:
            layer.act = None
        if not (isinstance(expected, Tensor) and whole):
            return False
        coarse = x.dtype == torch.bfloat16 or self.products == "bfloat16"
        return torch.allclose(out, expected, rtol=0, atol=(2e-2 if coarse else 1e-4) * float(expected.abs().max()))


def _on_cpu(module: Any) -> bool:
    return bool(module.weight.device.type == "cpu" and module.weight.numel())


def _bits(x: Tensor) -> Tensor:
    return x.view(torch.int16 if x.element_size() == 2 else torch.int32)
