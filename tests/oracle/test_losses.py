"""Losses against the authors' own code, values and gradients, on a model that is a table of the vectors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

library = pytest.importorskip("sentence_transformers", reason="the extra train is not installed")
pytest.importorskip("peft", reason="the extra train is not installed")
pytest.importorskip("datasets", reason="the extra train is not installed")
from sentence_transformers.base.modules import InputModule  # noqa: E402

from afterword.train.losses import Released, make_loss  # noqa: E402
from afterword.train.settings import Settings  # noqa: E402

TOLERANCE = {"float32": 2e-5, "float64": 1e-10}
TRIPLETS = ("anchor", "positive", "negative")
Make = Callable[[Any], nn.Module]


class Table(InputModule):
    """A vector per text: its gradient is that of the embeddings."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.vectors = nn.Parameter(vectors.clone())

    def preprocess(self, inputs: list[int], prompt: str | None = None, **kwargs: Any) -> dict[str, Tensor]:
        ids = torch.tensor(inputs)[:, None]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def forward(self, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return {**features, "sentence_embedding": self.vectors[features["input_ids"][:, 0]]}

    def get_embedding_dimension(self) -> int:
        return int(self.vectors.shape[1])

    def save(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    tokenizer = None


def by_name(**options: Any) -> Make:
    return lambda model: make_loss(model, Settings(**options))


def sums(*parts: tuple[float, int, Make]) -> Make:
    """A sum of losses, each on the first columns."""

    class Sum(nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.losses = nn.ModuleList([part(model) for _, _, part in parts])

        def forward(self, features: list[dict[str, Tensor]], labels: Tensor | None) -> Tensor:
            each = [loss(features[:n], labels) for loss, (_, n, _) in zip(self.losses, parts, strict=True)]
            return sum(w * loss for (w, _, _), loss in zip(parts, each, strict=True))  # type: ignore[return-value]

    return Sum


def released(*weights: float, **options: Any) -> Make:
    return lambda model: Released(model, weights, **options)  # type: ignore[arg-type]


CASES: dict[str, tuple[str, Make]] = {
    "simcse_hardneg_t0.05": ("triplets", by_name()),
    "simcse_hardneg_t0.1": ("triplets", by_name(temperature=0.1)),
    "simcse_hardneg_t1.0": ("triplets", by_name(temperature=1.0)),
    "simcse_noneg_t0.05": ("pairs", by_name()),
    "bellm_eq6_sum_t0.05": ("triplets", sums((6, 3, by_name()))),  # printed as a sum over the 6 rows
    "bellm_eq6_sum_t0.1": ("triplets", sums((6, 3, by_name(temperature=0.1)))),
    "bellm_eq6_sum_t1.0": ("triplets", sums((6, 3, by_name(temperature=1.0)))),
    "angle/cosine_loss_tau20": ("labels", by_name(loss="cosent")),
    "angle/cosine_loss_tau1": ("labels", by_name(loss="cosent", scale=1)),
    "angle/angle_loss_sum_tau20": ("labels", by_name(loss="angle")),
    "angle/angle_loss_sum_tau1": ("labels", by_name(loss="angle", scale=1)),
    "angle/angle_loss_mean_tau20": ("labels", by_name(loss="angle", scale=20 / 16)),  # a mean over 16 components
    "angle/angle_loss_mean_tau1": ("labels", by_name(loss="angle", scale=1 / 16)),
    "angle/in_batch_negative_tau20": ("binlabels", released(0, 1, 0)),
    "angle/contrastive_with_negative_tau20": ("triplets", by_name()),
    "angle/contrastive_noneg_tau20": ("pairs", by_name()),
    "angle_v0310/A_default": ("binlabels", released(1, 1, 1, angle_scale=1)),
    "angle_v0310/B_default": ("triplets", released(1, 1, 1, angle_scale=1)),
    "angle_v0310/B_bellm_train_py_effective": ("triplets", by_name(loss="released")),
    "angle_v0310/B_bellm_readme_intended_stage1": ("triplets", by_name(loss="released", weights=(0, 20, 1))),
    "angle_v0310/B_bellm_paper_eq6": ("triplets", by_name(loss="released", weights=(0, 1, 0))),
    "angle_v061/A_default": ("binlabels", by_name(loss="released", weights=(0, 1, 0.02))),
    "angle_v061/B_default": ("pairs", by_name()),
    # 0.6.1 halves the contrastive part, and gives a half of its own to the loss without hard negatives
    "angle_v061/C_default": ("triplets", sums((1, 3, released(0, 0.5, 0.02)), (0.5, 2, by_name()))),
    "angle_v061/C_ibn20_cos0_angle1": ("triplets", sums((1, 3, released(0, 0.5, 1)), (10, 2, by_name()))),
}


@pytest.fixture(scope="module")
def arrays(oracle: Path) -> dict[str, np.ndarray]:
    return dict(np.load(oracle / "losses.npz"))


def run(vectors: Tensor, columns: int, labels: Tensor | None, made: Make) -> tuple[float, Tensor]:
    """The loss of rows that lie one after the other, column by column within each, and its gradient."""
    table = Table(vectors)
    model = library.SentenceTransformer(modules=[table], device="cpu")
    features = [model.preprocess(list(range(c, len(vectors), columns))) for c in range(columns)]
    loss = made(model)(features, labels)
    loss.backward()
    assert table.vectors.grad is not None
    return loss.item(), table.vectors.grad


def data(arrays: dict[str, np.ndarray], form: str, dtype: torch.dtype) -> tuple[Tensor, int, Tensor | None]:
    columns = 3 if form == "triplets" else 2
    vectors = torch.tensor(arrays["in/triplet_zigzag" if columns == 3 else "in/pairs_zigzag"], dtype=dtype)
    return vectors, columns, torch.tensor(arrays[f"in/{form}"]) if form.endswith("labels") else None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_the_authors(name: str, dtype: str, arrays: dict[str, np.ndarray]):
    form, made = CASES[name]
    value, gradient = run(*data(arrays, form, getattr(torch, dtype)), made)
    wanted, slope = float(arrays[f"{dtype}/{name}"]), torch.tensor(arrays[f"{dtype}/{name}/grad"])
    assert abs(value - wanted) <= TOLERANCE[dtype] * abs(wanted)
    assert (gradient - slope).abs().max() <= TOLERANCE[dtype] * slope.abs().max()


@pytest.mark.parametrize("mini_batch", [1, 4, 32])
@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
def test_the_cached_loss_is_the_same(temperature: float, mini_batch: int, arrays: dict[str, np.ndarray]):
    made = by_name(loss="cached_ranking", mini_batch=mini_batch, temperature=temperature)
    value, gradient = run(*data(arrays, "triplets", torch.float64), made)
    wanted = arrays[f"float64/simcse_hardneg_t{temperature}"], arrays[f"float64/simcse_hardneg_t{temperature}/grad"]
    assert abs(value - wanted[0]) <= 1e-10 * wanted[0]
    assert abs(gradient.numpy() - wanted[1]).max() <= 1e-10 * abs(wanted[1]).max()


@pytest.mark.parametrize("loss", ["ranking", "cached_ranking", "released"])
def test_matryoshka_is_the_sum_over_the_first_components(loss: str, arrays: dict[str, np.ndarray]):
    vectors, columns, _ = data(arrays, "triplets", torch.float64)
    value, gradient = run(vectors, columns, None, by_name(loss=loss, matryoshka=(16, 8, 4)))
    parts = [run(vectors[:, :d], columns, None, by_name(loss=loss)) for d in (16, 8, 4)]
    assert abs(value - sum(v for v, _ in parts)) <= 1e-10 * value
    wide = sum(nn.functional.pad(g, (0, 16 - g.shape[1])) for _, g in parts)
    assert (gradient - wide).abs().max() <= 1e-10 * gradient.abs().max()


def test_every_array_of_a_loss_that_is_offered_is_used(arrays: dict[str, np.ndarray]):
    """SimCSE's extra weight on hard negatives is not offered."""
    there = {k.removeprefix("float64/") for k in arrays if k.startswith("float64/") and not k.endswith("/grad")}
    assert there - set(CASES) == {"simcse_hardneg_t0.05_w1.5"}
