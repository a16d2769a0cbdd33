"""Texts to vectors by all methods of a command, or of a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .names import VECTOR, reasons_with_options

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..methods import AnyMethod
    from .write_vectors import Array


class Loader(Protocol):
    """What loads an encoder."""

    def load(self, method: AnyMethod | None) -> Encoder:
        """An encoder with this method; None = its own."""


@dataclass
class MethodsEmbedder:
    """Embeds texts by all methods that the command names.

    Args:
        encoder: an encoder with the first of the methods, or with its own.
        methods: methods by name, at least one.
        options: options of `Encoder.encode`.
        condition: of every text that comes without one.
    """

    encoder: Encoder
    methods: dict[str, AnyMethod]
    options: dict[str, Any] = field(default_factory=dict)
    condition: str | None = None

    @classmethod
    def open(
        cls, choice: Loader, methods: dict[str, AnyMethod], options: dict[str, Any], condition: str | None = None
    ) -> MethodsEmbedder:
        """Load the model."""
        encoder = choice.load(next(iter(methods.values()), None))
        return cls(encoder, methods or {VECTOR: encoder.method}, options, condition)

    def __call__(
        self,
        texts: Sequence[str],
        conditions: Sequence[str] | None = None,
        on_progress: Callable[[float], None] = lambda _: None,
    ) -> dict[str, Array]:
        """Vectors (n, D) by name, NaN for a text without tokens.

        `on_progress` is called with the number of texts that were finished since its last call.
        """

        def done(vectors: int) -> None:
            on_progress(vectors / len(self.methods))

        options = {**self.options, "on_empty": "nan", "show_progress_bar": done}
        if conditions is None and self.condition is not None:
            conditions = [self.condition] * len(texts)
        with reasons_with_options():
            if len(self.methods) > 1:
                return self.encoder.encode_many(list(texts), self.methods, **options)
            (name,) = self.methods
            return {name: self.encoder.encode(list(texts), conditions=conditions, **options)}

    def why_nan(self, text: str) -> str:
        """The reason why the vector of a text is NaN or infinite."""
        empty = not self.encoder.backbone.tokenizer.ids([text])[0]
        return (
            "holds no token that the model knows" if empty else "has a vector that is not finite: try --dtype float32"
        )
