"""Candidates of an evaluation: one model with several methods and post-processing steps, each with its own results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Protocol

from ..encode.sentences import shares
from ..encoder import Encoder
from ..errors import InputError
from ..files.fingerprint import described, fingerprint, identity, weights_digest
from ..methods import AnyMethod, Method
from ..post import Post, Unfitted, resolved
from .task import Embedder
from .vectors import Array, OnProgress, VectorCache, apply_steps

TAKEN = ("results.md", "results.csv")
"""Files that an evaluation writes: no folder of results has such a name."""
BLOCK = 8192  # number of vectors given to a step's fit at once


class Named(Embedder, Protocol):
    """An embedder with a fingerprint of everything that its vectors depend on."""

    @property
    def fingerprint(self) -> str:
        """A hash: embedders with equal fingerprints give equal vectors."""


@dataclass(frozen=True)
class Fitting:
    """The texts that methods and steps with fitted parameters are fitted on.

    Attributes:
        texts: the texts; None = the different sentences of each task itself, without their labels.
        digest: a hash of the texts.
    """

    texts: tuple[str, ...] | None = None
    digest: str = "target"

    @classmethod
    def on(cls, texts: Sequence[str]) -> Fitting:
        """Fit on these texts, each as often as it is there, as `Encoder.fit` does."""
        return cls(tuple(texts), blake2b("\0".join(texts).encode(), digest_size=16).hexdigest())


@dataclass(frozen=True)
class Candidate:
    """One encoder that is evaluated.

    Attributes:
        name: names its folder of results and its row in tables.
        cache: holds its vectors before post-processing; empty if the method must be fitted first.
        raw: the name of its vectors in the cache.
        post: the post-processing steps that turn those into its own vectors.
        embedder: the encoder, steps included.
        digest: a hash of everything that its vectors depend on; for unfitted steps, of their options.
        about: what is saved about it with its results.
        options: keyword arguments for `Encoder.encode_many`.
    """

    name: str
    cache: VectorCache
    raw: str
    post: tuple[Post, ...]
    embedder: Embedder
    digest: str
    about: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unfitted(self) -> bool:
        """Whether its method or one of its steps must be fitted before use."""
        method = isinstance(self.embedder, Encoder) and not _is_fitted(self.embedder.method)
        return method or any(isinstance(step, Unfitted) for step in self.post)

    def fit(self, texts: Sequence[str]) -> Candidate:
        """The candidate with its method and then its steps, one after the other, fitted on texts.

        Raises:
            InputError: there are no texts, or too few.
        """
        if not texts:
            raise InputError(f"{self.name}: this task has no plain sentences to fit on: give a text file with --fit")
        embedder, cache = self.embedder, self.cache
        if isinstance(embedder, Encoder) and not _is_fitted(embedder.method):
            embedder = replace(embedder, method=replace(embedder, post=()).fit(texts).method)
            cache = shared_cache(embedder, {self.raw: embedder.method}, self.options)
        cache.add(texts)
        fitted: tuple[Post, ...] = ()
        for step in self.post:
            if isinstance(step, Unfitted):
                step = step.fit(_blocks(cache, self.raw, texts, fitted))
            fitted += (step,)
        if isinstance(embedder, Encoder):
            embedder = replace(embedder, post=fitted)
        return replace(self, cache=cache, post=fitted, embedder=embedder)


def _blocks(cache: VectorCache, name: str, texts: Sequence[str], steps: tuple[Post, ...]) -> Iterator[Array]:
    for first in range(0, len(texts), BLOCK):
        yield apply_steps(cache.vectors(name, texts[first : first + BLOCK]), steps)


def candidates(
    encoder: Encoder,
    methods: Mapping[str, AnyMethod],
    posts: Mapping[str, tuple[Post, ...]],
    options: Mapping[str, Any] | None = None,
    fitting: Fitting | None = None,
) -> list[Candidate]:
    """Candidates for every combination of methods and steps, on an encoder's model. Methods share forwards if possible.

    Args:
        encoder: gives the model; its own post-processing steps are applied before those of `posts`.
        methods: methods by name.
        posts: tuples of steps by name; {"none": ()} for none.
        options: keyword arguments for `Encoder.encode_many`: batch_tokens, on_long ...
        fitting: methods with fitted parameters are fitted on its texts now; if each task has its own texts, later.
    """
    options = options or {}
    if fitting is not None and fitting.texts is not None:
        methods = {name: _fitted(encoder, method, fitting.texts) for name, method in methods.items()}
    names = [name for name, method in methods.items() if _is_fitted(method)]
    single = {name: method for name in names if isinstance(method := methods[name], Method)}
    groups = [[list(single)[i] for i in share.methods] for share in shares(list(single.values()), encoder.backbone)]
    caches: dict[str, VectorCache] = {}
    for group in groups + [[name] for name in names if name not in single]:  # an ensemble has forwards of its own
        members = {name: methods[name] for name in group}
        caches |= dict.fromkeys(members, shared_cache(encoder, members, options))
    weights = weights_digest(encoder.backbone.model)
    posts = {name: resolved(steps, encoder.backbone) for name, steps in posts.items()}
    return [
        _candidate(encoder, name, method, post, steps, caches.get(name) or _empty_cache(), options, weights)
        for name, method in methods.items()
        for post, steps in posts.items()
    ]


def _is_fitted(method: AnyMethod) -> bool:
    return all(member.weigh.fitted for member in method.members)


def _fitted(encoder: Encoder, method: AnyMethod, texts: Sequence[str]) -> AnyMethod:
    return method if _is_fitted(method) else replace(encoder, method=method, post=()).fit(texts).method


def _empty_cache() -> VectorCache:
    return VectorCache((), lambda texts, on_progress: {})


def _candidate(
    encoder: Encoder, name: str, method: AnyMethod, post: str, steps: tuple[Post, ...], cache: VectorCache,
    options: Mapping[str, Any], weights: bytes,
) -> Candidate:  # fmt: skip
    whole = replace(encoder, method=method, post=(*encoder.post, *steps))
    about = {"method": name, "post": post, "identity": identity(whole, weights), "settings": settings(whole, weights)}
    return Candidate(label(name, post), cache, name, whole.post, whole, fingerprint(whole, weights), about, options)


def settings(encoder: Encoder, weights: bytes) -> dict[str, Any]:
    """What is most likely to differ between two encoders of one name, in a form that is read by people.

    Args:
        encoder: the encoder.
        weights: the `weights_digest` of its model.
    """
    method = json.dumps(described(encoder)["method"], sort_keys=True, default=str)
    return {
        "max_length": encoder.max_length,
        "prompt": (encoder.prompts or {}).get(encoder.default_prompt_name or ""),
        "dtype": str(encoder.backbone.dtype).removeprefix("torch."),
        "method": blake2b(method.encode(), digest_size=4).hexdigest(),
        "weights": weights.hex()[:8],
    }


def shared_cache(encoder: Encoder, methods: Mapping[str, AnyMethod], options: Mapping[str, Any]) -> VectorCache:
    """A cache for the vectors of several methods on one model, before post-processing."""
    plain = replace(encoder, post=())

    def run(texts: list[str], on_progress: OnProgress) -> dict[str, Array]:
        return plain.encode_many(texts, methods, show_progress_bar=on_progress, **options)

    return VectorCache(tuple(methods), run)


def other(embedder: Named, name: str, posts: Mapping[str, tuple[Post, ...]]) -> list[Candidate]:
    """Candidates for an embedder that is not an `Encoder`, one for each list of steps."""

    def run(texts: list[str], on_progress: OnProgress) -> dict[str, Array]:
        vectors = embedder.encode(texts)
        on_progress(len(texts))
        return {name: vectors}

    cache = VectorCache((name,), run)
    return [
        Candidate(
            label(name, post), cache, name, steps, embedder, f"{embedder.fingerprint}+{steps!r}",
            {"method": name, "post": post},
        )
        for post, steps in posts.items()
    ]  # fmt: skip


def label(method: str, post: str) -> str:
    """The name of a candidate.

    >>> label("echo", "whiten+normalise"), label("echo", "none")
    ('echo+whiten+normalise', 'echo')
    """
    return method if post == "none" else f"{method}+{post}"


def file_name(name: str) -> str:
    """A file or folder name that is valid on any system.

    >>> file_name("openai-community/gpt2"), file_name("reba:pool=mean+whiten:dimensions=64")
    ('openai-community__gpt2', 'reba-pool=mean+whiten-dimensions=64')
    """
    plain = name.replace(":", "-").replace("/", "__")
    safe = re.sub(r"[^\w=,.+-]", "_", plain).strip(".") or "_"
    if safe == plain and len(safe) < 120 and safe not in TAKEN:
        return safe
    return f"{safe[:100]}~{blake2b(name.encode(), digest_size=4).hexdigest()}"
