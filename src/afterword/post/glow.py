"""An invertible network from vectors to a standard normal latent, with the logarithm of its Jacobian determinant."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError, MethodError

Coupling = Literal["additive", "affine"]


class Step(nn.Module):
    """One step: scale and shift each component (actnorm), permute, shift one half by a function of the other.

    Args:
        width: D.
        hidden: units of the coupling network's two hidden layers.
        affine: also scale the second half, by a factor between 1 / e and e; else only shift it.
        generator: random generator of the permutation and the initial weights.
    """

    order: Tensor

    def __init__(self, width: int, hidden: int, affine: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.middle = width // 2
        self.shift, self.log_scale = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("order", torch.randperm(width, generator=generator))
        out = (width - self.middle) * (2 if affine else 1)
        sizes = ((hidden, self.middle), (hidden, hidden), (out, hidden))
        first = [0.05 * torch.randn(*size, generator=generator) for size in sizes[:2]]
        self.weights = nn.ParameterList([*first, torch.zeros(*sizes[2])])  # the last is 0: no coupling at first
        self.biases = nn.ParameterList([torch.zeros(rows) for rows, _ in sizes])
        self.affine = affine

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors (n, D), and the log-determinant of each (n,)."""
        x = ((x + self.shift) * self.log_scale.exp())[:, self.order]
        fixed, moved = x[:, : self.middle], x[:, self.middle :]
        shift, log_scale = self._coupled(fixed)
        return torch.cat([fixed, (moved + shift) * log_scale.exp()], 1), self.log_scale.sum() + log_scale.sum(1)

    def inverse(self, z: Tensor) -> Tensor:
        """The vectors (n, D) that `forward` takes to ``z``."""
        fixed, moved = z[:, : self.middle], z[:, self.middle :]
        shift, log_scale = self._coupled(fixed)
        x = torch.cat([fixed, moved * (-log_scale).exp() - shift], 1)
        return x[:, self.order.argsort()] * (-self.log_scale).exp() - self.shift

    def _coupled(self, fixed: Tensor) -> tuple[Tensor, Tensor]:
        """Shift and log-scale of the second half (n, D - D // 2)."""
        x = fixed
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = F.linear(x.relu() if i else x, weight, bias)
        if not self.affine:
            return x, torch.zeros_like(x)
        shift, log_scale = x.chunk(2, 1)
        return shift, log_scale.tanh()

    @torch.no_grad()
    def start(self, x: Tensor) -> Tensor:
        """Initialise actnorm so that these vectors (n, D) get mean 0 and variance 1; returns the step's output."""
        deviation = x.std(0, correction=0)
        varies = deviation > 1e-6 * deviation.max()
        self.shift.copy_(-x.mean(0))
        self.log_scale.copy_(torch.where(varies, -deviation.clamp(min=torch.finfo(x.dtype).tiny).log(), 0.0))
        output: Tensor = self(x)[0]
        return output


class Glow(nn.Module):
    """Steps one after the other: z = f(x), with x = f^-1(z) and log |det df/dx| known exactly.

    Source: Kingma & Dhariwal 2018 (Glow); the shape of Li et al. 2020 (BERT-flow), section 3.2 and appendix: random
    permutations for 1x1 convolutions, additive couplings. All components pass all steps (one level).

    Args:
        width: D.
        steps: number of steps.
        hidden: hidden units of each coupling network.
        coupling: "additive" or "affine".
        seed: random seed of the permutations and the initial weights.

    >>> x = torch.randn(3, 4)
    >>> glow = Glow(4, coupling="affine")
    >>> bool(torch.allclose(glow.inverse(glow(x)[0]), x, atol=1e-6))
    True
    """

    def __init__(
        self, width: int, steps: int = 9, hidden: int = 32, coupling: Coupling = "additive", seed: int = 0
    ) -> None:
        super().__init__()
        if width < 2:
            raise InputError(f"vectors of {width} component: a flow couples halves, which needs two")
        if coupling not in ("additive", "affine"):
            raise MethodError(f"coupling={coupling!r}: choose additive or affine")
        self.shape: dict[str, Any] = {"width": width, "steps": steps, "hidden": hidden, "coupling": coupling}
        generator = torch.Generator().manual_seed(seed)
        self.steps = nn.ModuleList(Step(width, hidden, coupling == "affine", generator) for _ in range(steps))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors (n, D) to latents (n, D), and the log-determinant of each (n,)."""
        determinant = x.new_zeros(len(x))
        for step in self.steps:
            x, more = step(x)
            determinant = determinant + more
        return x, determinant

    def inverse(self, z: Tensor) -> Tensor:
        """The vectors (n, D) of latents (n, D)."""
        for step in reversed(list(self._steps())):
            z = step.inverse(z)
        return z

    def log_likelihood(self, x: Tensor) -> Tensor:
        """log p(x) of each vector (n,) in nats: of its latent under a standard normal, plus the log-determinant."""
        z, determinant = self(x)
        likelihood: Tensor = determinant - 0.5 * (z.square() + math.log(2 * math.pi)).sum(1)
        return likelihood

    def start(self, x: Tensor) -> None:
        """Initialise every actnorm with these vectors (n, D), as Glow does with its first batch."""
        for step in self._steps():
            x = step.start(x)

    def _steps(self) -> Iterator[Step]:
        yield from self.steps  # type: ignore[misc]
