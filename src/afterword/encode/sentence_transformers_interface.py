"""What sentence-transformers' own tools ask of a model, under that library's names; `Encoder` answers it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..errors import MissingExtra
from ..methods import Method
from ..post import Post
from .options import WAY
from .outputs import Array
from .processes import Workers
from .similarity import pairwise, similarity


class Interface:
    """An encoder's part that sentence-transformers' evaluators, miners and their kind use beside `encode`."""

    backbone: Backbone
    method: Method
    post: tuple[Post, ...]
    max_length: int | None
    similarity_fn_name: str
    if TYPE_CHECKING:

        @property
        def dimension(self) -> int:
            """D, the width of a vector."""

        @property
        def fingerprint(self) -> str:
            """Names everything that a vector depends on."""

    def similarity(self, a: Any, b: Any) -> Any:
        """How similar each row of ``a`` (n, D) is to each of ``b`` (m, D), by `similarity_fn_name`.

        Args:
            a: an array, a tensor or a list of either; (D,) for one.
            b: the same.

        Returns:
            (n, m) float32, an array, or a tensor where one of the two is a tensor; larger is more similar (distances
            are negated).

        Raises:
            InputError: their widths differ.
        """
        made = similarity(_array(a), _array(b), self.similarity_fn_name)
        given = next((x for x in (a, b) if isinstance(x, Tensor)), None)
        return made if given is None else torch.from_numpy(made).to(given.device)

    def similarity_pairwise(self, a: Any, b: Any) -> Tensor:
        """How similar each row of ``a`` (n, D) is to the row of ``b`` (n, D) at its place, by `similarity_fn_name`.

        Args:
            a: an array, a tensor or a list of either; (D,) for one.
            b: the same.

        Returns:
            (n,), a tensor whatever is given, as sentence-transformers' tools expect.

        Raises:
            InputError: their shapes differ.
        """
        return torch.from_numpy(pairwise(_array(a), _array(b), self.similarity_fn_name))

    def get_embedding_dimension(self) -> int:
        """D, the width of a vector."""
        return self.dimension

    def get_sentence_embedding_dimension(self) -> int:
        """D, under its older name."""
        return self.get_embedding_dimension()

    @property
    def max_seq_length(self) -> int | None:
        """Tokens at most, `max_length` under sentence-transformers' name."""
        return self.max_length

    @max_seq_length.setter
    def max_seq_length(self, value: int | None) -> None:
        self.max_length = value

    @property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer."""
        return self.backbone.tokenizer.hf

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.backbone.device

    @property
    def model_card_data(self) -> Any:
        """Where sentence-transformers' evaluators write their scores.

        Its ``base_model`` is the fingerprint: that name stands before vectors that `mine_hard_negatives` keeps.

        Raises:
            MissingExtra: sentence-transformers is not installed.
        """
        if "_model_card_data" not in self.__dict__:
            try:
                from sentence_transformers import SentenceTransformerModelCardData
            except ImportError as e:
                raise MissingExtra("sentence-transformers>=5.4", "st") from e
            self.__dict__["_model_card_data"] = SentenceTransformerModelCardData()
        self.__dict__["_model_card_data"].base_model = self.fingerprint
        return self.__dict__["_model_card_data"]

    def eval(self) -> Interface:
        """Itself: it always embeds as trained models do, without dropout."""
        return self

    def start_multi_process_pool(self, target_devices: Sequence[Any] | None = None) -> Workers:
        """Start processes that hold this encoder's model, for many calls of ``encode(..., pool=...)``.

        Args:
            target_devices: one process each, "cuda:0" or "cpu"; None = every GPU, or four processes on the CPU.

        Raises:
            InputError: no such device.
        """
        return Workers(self.backbone, target_devices)

    @staticmethod
    def stop_multi_process_pool(pool: Workers) -> None:
        """End the processes of `start_multi_process_pool`."""
        pool.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say where a SentenceTransformer's other attributes are to be found."""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}; {WAY}", name=name, obj=self)


def _array(vectors: Any) -> Array:
    """Vectors as an array, wherever they lie."""
    if isinstance(vectors, list | tuple) and any(isinstance(v, Tensor) for v in vectors):
        vectors = torch.stack(list(vectors))
    if isinstance(vectors, Tensor):
        vectors = vectors.detach().cpu()
        return np.asarray(vectors.float() if vectors.dtype == torch.bfloat16 else vectors)
    return np.asarray(vectors)
