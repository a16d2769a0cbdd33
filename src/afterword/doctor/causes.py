"""Compare vectors with those of a model, and name the mistake that explains a difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Literal, TypeAlias

import numpy as np
import torch

from ..encode.similarity import Array, unit
from ..encoder import Encoder
from ..methods import AnyMethod, Method, classical
from ..methods.weights import Pool
from ..post import Dense, after

Verdict = Literal["PASS", "FAIL", "NOTE"]
"""FAIL: a client gets wrong vectors, and no error. NOTE: worth knowing."""
Finding: TypeAlias = tuple[Verdict, float | int | None, str]
Mistake: TypeAlias = tuple[list[str], Array]

POOLS: dict[Pool, str] = {"mean": "mean", "last": "last-token", "cls": "first-token", "weighted": "position-weighted"}
DRIFT = 0.2  # distance of unit vectors up to which they may come from one model, such as in 4 and in 32 bits


def distance(a: Array, b: Array) -> float:
    """The largest distance between the directions of vectors a[i] and b[i], which are (n, D)."""
    return float(np.linalg.norm(unit(a, np.float64) - unit(b, np.float64), axis=1).max(initial=0))


def mistakes(encoder: Encoder, texts: Sequence[str], prompt: str) -> Iterator[Mistake]:
    """Yield common mistakes, alone and combined, with the vectors (n, D) that an encoder gives with them."""
    named = encoder.prompts or {}
    name = next((name for name, text in named.items() if text == prompt), repr(prompt))
    prompts = {"": prompt} | ({f"without the {name} prompt": ""} if prompt else {})
    prompts |= {f"with the {name} prompt": text for name, text in named.items() if text not in ("", prompt)}
    posts = {"": encoder.post}
    if any(isinstance(step, Dense) for step in encoder.post):
        posts["without the Dense layer"] = tuple(step for step in encoder.post if not isinstance(step, Dense))
    pooled: dict[str, AnyMethod] = {"": encoder.method}
    pooled |= {f"{label} pooling": classical(pool) for pool, label in POOLS.items()}
    raw = replace(encoder, post=())
    special = {"": pooled, "without special tokens": {at: one.changed(_bare) for at, one in pooled.items()}}
    for (around, methods), (prompted, text) in product(special.items(), prompts.items()):
        by_pool = raw.encode_many(list(texts), methods, prompt=text, on_long="ignore", on_empty="nan")
        for (label, vectors), (step, post) in product(by_pool.items(), posts.items()):
            changes = [change for change in (label, step, around, prompted) if change]
            yield changes, after(torch.from_numpy(vectors), post).numpy()


def _bare(method: Method) -> Method:
    return replace(method, layout=replace(method.layout, add_special_tokens=False))


def compared(found: Array, expected: Array, tried: Iterable[Mistake], tolerance: float, what: str) -> Finding:
    """Compare vectors (n, D') with the expected ones (n, D), NaN = unknown; the number is the smallest cosine."""
    rows = np.isfinite(expected).all(1)
    found, expected, width = found[rows], expected[rows], found.shape[1]
    if not np.isfinite(found).all():
        return "FAIL", None, f"{what}: vectors are not finite"
    full, reasons = expected.shape[1], []
    off = distance(found[:, :full], expected[:, :width])
    if width < full and off <= tolerance:
        reasons.append(f"looks like the first {width} of {full} components")
    elif width != full or off > tolerance:
        near = [(distance(found, v[rows]), changes) for changes, v in tried if v.shape[1] == width]
        reasons.append(_explained(near, off, tolerance) if tried != () else "pass the model to learn the cause")
        reasons += [f"{width} of {full} components"] if width != full else []
    lengths, theirs = (np.linalg.norm(vectors, axis=1) for vectors in (found, expected))
    span = f"lengths are {lengths.min():.3g} to {lengths.max():.3g}, not {theirs.min():.3g} to {theirs.max():.3g}"
    differs = not np.allclose(lengths, theirs, rtol=0.02)
    if differs and np.allclose(theirs, 1, atol=0.01):
        reasons.append(f"missing normalisation: {span}")
    cosine = 1 - off**2 / 2 if width == full else None
    if reasons:
        return "FAIL", cosine, f"{what}: {'; '.join(reasons)}"
    return ("NOTE", cosine, f"{what}; {span}") if differs else ("PASS", cosine, what)


def _explained(near: list[tuple[float, list[str]]], off: float, tolerance: float) -> str:
    d, changes = min(near, key=lambda one: (max(one[0], tolerance), len(one[1])), default=(np.inf, []))
    if d <= tolerance:
        return f"looks like {' '.join(changes)}"
    if d < off / 2 and changes:
        return f"looks most like {' '.join(changes)}, but differs from that by {d:.2g}"
    if off <= DRIFT:
        return f"looks like drift of {off:.2g}: quantised or changed weights, or lower precision"
    return "no known mistake explains it: other weights, another tokenizer, or another method"
