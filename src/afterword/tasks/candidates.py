"""What is evaluated: encoders that share a model, each with its place among the results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from ..encode.sharing import shares
from ..encoder import Encoder
from ..errors import InputError
from ..files.fingerprint import fingerprint, weights_digest
from ..methods import Method
from ..post import Post, Unfitted
from .task import Embedder
from .vectors import Array, Forward, Told, through

BLOCK = 8192  # vectors that a step is fitted on at once


class Named(Embedder, Protocol):
    """An embedder that says what its vectors depend on."""

    @property
    def fingerprint(self) -> str:
        """Two of one fingerprint give the same vectors."""


@dataclass(frozen=True)
class Fitting:
    """What steps that learn from texts are fitted on.

    Attributes:
        texts: None stands for the sentences of each task itself, without their labels.
        digest: a hash of the texts.
    """

    texts: tuple[str, ...] | None = None
    digest: str = "target"

    @classmethod
    def on(cls, texts: Sequence[str]) -> Fitting:
        """On these texts, each once."""
        listed = tuple(dict.fromkeys(texts))
        return cls(listed, blake2b("\0".join(listed).encode(), digest_size=16).hexdigest())


@dataclass(frozen=True)
class Candidate:
    """One encoder that is evaluated.

    Attributes:
        name: of its folder among the results, and of its row in tables.
        forward: what makes its raw vectors; what must be fitted first has one that makes none.
        raw: which of them.
        post: the steps from those to its own vectors.
        embedder: the whole encoder, steps included.
        digest: what its vectors depend on; for steps that are not fitted yet, how they will be.
        about: what its results say of it.
        options: of `Encoder.encode_many`.
    """

    name: str
    forward: Forward
    raw: str
    post: tuple[Post, ...]
    embedder: Embedder
    digest: str
    about: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unfitted(self) -> bool:
        """Whether its method or one of its steps must see texts first."""
        method = isinstance(self.embedder, Encoder) and not self.embedder.method.weigh.fitted
        return method or any(isinstance(step, Unfitted) for step in self.post)

    def fit(self, texts: Sequence[str]) -> Candidate:
        """The same with everything fitted on these texts, its method first, then one step after the other.

        Raises:
            InputError: there are none, or too few.
        """
        if not texts:
            raise InputError(f"{self.name}: this task has no plain sentences to fit on: give a text file with --fit")
        embedder, forward = self.embedder, self.forward
        if isinstance(embedder, Encoder) and not embedder.method.weigh.fitted:
            embedder = replace(embedder, method=replace(embedder, post=()).fit(texts).method)
            forward = shared(embedder, {self.raw: embedder.method}, forward.folder, self.options)
        forward.add(texts)
        done: tuple[Post, ...] = ()
        for step in self.post:
            if isinstance(step, Unfitted):
                step = step.fit(_blocks(forward, self.raw, texts, done))
            done += (step,)
        if isinstance(embedder, Encoder):
            embedder = replace(embedder, post=done)
        return replace(self, forward=forward, post=done, embedder=embedder)


def _blocks(forward: Forward, name: str, texts: Sequence[str], steps: tuple[Post, ...]) -> Iterator[Array]:
    for first in range(0, len(texts), BLOCK):
        yield through(forward.vectors(name, texts[first : first + BLOCK]), steps)


def candidates(
    encoder: Encoder,
    methods: Mapping[str, Method],
    posts: Mapping[str, tuple[Post, ...]],
    folder: Path,
    options: Mapping[str, Any] | None = None,
    fitting: Fitting | None = None,
) -> list[Candidate]:
    """An encoder's model by several methods, each followed by several steps. Methods share forwards where they can.

    Args:
        encoder: its own steps come first.
        methods: by name.
        posts: further steps by name; {"none": ()} for none.
        folder: where vectors wait.
        options: of `Encoder.encode_many`: batch_tokens, on_long ...
        fitting: methods that learn from texts are fitted on these; left for later where each task has its own.
    """
    options = options or {}
    if fitting is not None and fitting.texts is not None:
        methods = {name: _fitted(encoder, method, fitting.texts) for name, method in methods.items()}
    names = [name for name, method in methods.items() if method.weigh.fitted]
    forwards: dict[str, Forward] = {}
    for share in shares([methods[name] for name in names], encoder.backbone):
        members = {names[i]: methods[names[i]] for i in share.methods}
        forwards |= dict.fromkeys(members, shared(encoder, members, folder, options))
    weights = weights_digest(encoder.backbone.model)
    return [
        _candidate(encoder, name, method, post, steps, forwards.get(name) or _none(folder), options, weights)
        for name, method in methods.items()
        for post, steps in posts.items()
    ]


def _fitted(encoder: Encoder, method: Method, texts: Sequence[str]) -> Method:
    return method if method.weigh.fitted else replace(encoder, method=method, post=()).fit(texts).method


def _none(folder: Path) -> Forward:
    return Forward((), lambda texts, told: {}, folder)


def _candidate(
    encoder: Encoder, name: str, method: Method, post: str, steps: tuple[Post, ...], forward: Forward,
    options: Mapping[str, Any], weights: bytes,
) -> Candidate:  # fmt: skip
    whole = replace(encoder, method=method, post=(*encoder.post, *steps))
    about = {"method": name, "post": post}
    return Candidate(label(name, post), forward, name, whole.post, whole, fingerprint(whole, weights), about, options)


def shared(encoder: Encoder, methods: Mapping[str, Method], folder: Path, options: Mapping[str, Any]) -> Forward:
    """The raw vectors of an encoder's model by these methods."""
    plain = replace(encoder, post=())

    def run(texts: list[str], told: Told) -> dict[str, Array]:
        return plain.encode_many(texts, methods, show_progress_bar=told, **options)

    return Forward(tuple(methods), run, folder)


def other(embedder: Named, name: str, posts: Mapping[str, tuple[Post, ...]], folder: Path) -> list[Candidate]:
    """An embedder of another kind, followed by several steps; arguments as for `candidates`."""

    def run(texts: list[str], told: Told) -> dict[str, Array]:
        vectors = embedder.encode(texts)
        told(len(texts))
        return {name: vectors}

    forward = Forward((name,), run, folder)
    return [
        Candidate(
            label(name, post), forward, name, steps, embedder, f"{embedder.fingerprint}+{steps!r}",
            {"method": name, "post": post},
        )
        for post, steps in posts.items()
    ]  # fmt: skip


def label(method: str, post: str) -> str:
    """What an encoder is called.

    >>> label("echo", "whiten+normalise"), label("echo", "none")
    ('echo+whiten+normalise', 'echo')
    """
    return method if post == "none" else f"{method}+{post}"


def file_name(name: str) -> str:
    """A name as a file or folder may be called on any system; what differs stays different.

    >>> file_name("openai-community/gpt2"), file_name("reba:pool=mean+whiten:dimensions=64")
    ('openai-community__gpt2', 'reba-pool=mean+whiten-dimensions=64')
    """
    plain = name.replace(":", "-").replace("/", "__")
    safe = re.sub(r"[^\w=,.+-]", "_", plain).strip(".") or "_"
    if safe == plain and len(safe) < 120:
        return safe
    return f"{safe[:100]}~{blake2b(name.encode(), digest_size=4).hexdigest()}"
