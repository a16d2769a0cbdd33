"""BERT-flow: map vectors by an invertible network to latents that follow a standard normal distribution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError, MethodError
from .glow import Coupling, Glow
from .linear import Post, check_positive, check_width
from .unfitted import Unfitted, Vectors, blocks


@dataclass(frozen=True, eq=False)
class FittedFlow(Post):
    """Map vectors to the latents of a trained flow.

    Args:
        net: the network, in float32.
    """

    net: Glow

    def width(self, width: int) -> int:
        """D, unchanged; it must be that of the flow."""
        check_width(self, width, self.net.shape["width"])
        return width

    def __call__(self, vectors: Tensor) -> Tensor:
        """Latents (n, D); raises MethodError if the vectors have another width than the flow."""
        self.width(vectors.shape[-1])
        weight = next(self.net.to(vectors.device).parameters())
        latent: Tensor = self.net(vectors.to(weight.dtype))[0]
        return latent.to(vectors.dtype)


@dataclass(frozen=True)
class Flow(Unfitted):
    """Train an invertible network by maximum likelihood, with a standard normal distribution of the latents.

    Source: Li et al. 2020, "On the Sentence Embeddings from Pre-trained Language Models" (BERT-flow), Equation 4;
    nine steps of 32 units, Adam and one epoch as in bohanli/BERT-flow@9f79ed1, with one level for its three.

    Args:
        epochs: passes over the vectors.
        steps: steps of the network.
        hidden: hidden units of each coupling network.
        coupling: "additive", as in the paper, or "affine".
        batch: vectors per update.
        rate: learning rate of Adam.
        rows: maximum number of vectors in memory; of more, a random sample is taken.
        seed: random seed of the sample, the network and the order of the vectors.
    """

    epochs: int = 1
    steps: int = 9
    hidden: int = 32
    coupling: Coupling = "additive"
    batch: int = 32
    rate: float = 1e-3
    rows: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the values."""
        for name in ("epochs", "steps", "hidden", "batch", "rows"):
            check_positive(self, name)
        if not 0 < self.rate < float("inf"):
            raise MethodError(f"Flow: rate={self.rate!r}: give a learning rate over 0")

    def fit(self, vectors: Vectors | Iterable[Vectors]) -> FittedFlow:
        """Train the flow; see `Unfitted.fit`. With the same machine and number of threads, the result is the same."""
        generator = torch.Generator().manual_seed(self.seed)
        x = sample(blocks(vectors), self.rows, generator)
        if len(x) < 2:
            raise InputError(f"flow: {len(x)} vectors: give at least two, better some thousands")
        net = Glow(x.shape[1], self.steps, self.hidden, self.coupling, self.seed)
        net.start(x)
        adam = torch.optim.Adam(net.parameters(), lr=self.rate)
        with torch.enable_grad():
            for _ in range(self.epochs):
                for batch in torch.randperm(len(x), generator=generator).split(self.batch):
                    loss = -net.log_likelihood(x[batch]).mean() / x.shape[1]
                    if not bool(loss.isfinite()):
                        raise InputError(f"flow: the likelihood is {-loss.item()}: lower the rate from {self.rate}")
                    adam.zero_grad()
                    loss.backward()
                    adam.step()
        return FittedFlow(net.eval().requires_grad_(False))


def sample(parts: Iterator[Tensor], rows: int, generator: torch.Generator) -> Tensor:
    """A uniform random sample (rows, D) of vectors in float32, in their order; all, if there are no more."""
    kept, keys = torch.empty(0), torch.empty(0)
    for part in parts:
        key = torch.rand(len(part), generator=generator)
        kept, keys = (torch.cat([kept, part.float()]), torch.cat([keys, key])) if len(kept) else (part.float(), key)
        if len(keys) > rows:
            chosen = keys.topk(rows).indices.sort().values
            kept, keys = kept[chosen], keys[chosen]
    return kept
