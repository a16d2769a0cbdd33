"""The attributes and methods that sentence-transformers' tools expect of a model; `Encoder` inherits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..errors import MissingExtra
from ..methods import AnyMethod
from ..post import Post
from .options import WAY
from .output_arrays import Array
from .processes import Workers
from .similarity import pairwise, similarity


class Interface:
    """What sentence-transformers' evaluators, miners and other tools use of a model, beside `encode`."""

    backbone: Backbone
    method: AnyMethod
    post: tuple[Post, ...]
    max_length: int | None
    similarity_fn_name: str
    if TYPE_CHECKING:

        @property
        def dimension(self) -> int:
            """D, the number of components of a vector."""

        @property
        def fingerprint(self) -> str:
            """A hash of everything that a vector depends on."""

    def similarity(self, a: Any, b: Any) -> Any:
        """The similarity of each row of ``a`` (n, D) to each row of ``b`` (m, D), by `similarity_fn_name`.

        Args:
            a: vectors as an array, a tensor or a list of either; (D,) for one vector.
            b: the same.

        Returns:
            (n, m) float32; a tensor if ``a`` or ``b`` is one, else an array. Larger is more similar: distances are
            negated.

        Raises:
            InputError: their numbers of components differ.
        """
        scores = similarity(_array(a), _array(b), self.similarity_fn_name)
        tensor = next((x for x in (a, b) if isinstance(x, Tensor)), None)
        return scores if tensor is None else torch.from_numpy(scores).to(tensor.device)

    def similarity_pairwise(self, a: Any, b: Any) -> Tensor:
        """The similarity of each row of ``a`` (n, D) to the same row of ``b`` (n, D), by `similarity_fn_name`.

        Args:
            a: vectors as an array, a tensor or a list of either; (D,) for one vector.
            b: the same.

        Returns:
            (n,); always a tensor, as sentence-transformers' tools expect.

        Raises:
            InputError: their shapes differ.
        """
        return torch.from_numpy(pairwise(_array(a), _array(b), self.similarity_fn_name))

    def get_embedding_dimension(self) -> int:
        """D, the number of components of a vector."""
        return self.dimension

    def get_sentence_embedding_dimension(self) -> int:
        """The same, under its older name."""
        return self.get_embedding_dimension()

    @property
    def max_seq_length(self) -> int | None:
        """The maximum number of tokens: `max_length` under sentence-transformers' name."""
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
        """The device that the model is on."""
        return self.backbone.device

    @property
    def model_card_data(self) -> Any:
        """The object that sentence-transformers' evaluators write their scores to.

        Its ``base_model`` is the fingerprint: `mine_hard_negatives` names the vectors that it caches by it.

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
        """The encoder itself: it always computes vectors without dropout."""
        return self

    def start_multi_process_pool(self, target_devices: Sequence[Any] | None = None) -> Workers:
        """Start processes that hold copies of this encoder's model, for many calls of ``encode(..., pool=...)``.

        Args:
            target_devices: devices such as "cuda:0" or "cpu", one process on each; None = every GPU, or four
                processes on the CPU.

        Raises:
            InputError: there is no such device.
        """
        return Workers(self.backbone, target_devices)

    @staticmethod
    def stop_multi_process_pool(pool: Workers) -> None:
        """End the processes that `start_multi_process_pool` started."""
        pool.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse other attributes of SentenceTransformer, with a message that says where they are."""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}; {WAY}", name=name, obj=self)


def _array(vectors: Any) -> Array:
    """Vectors as a numpy array, from any device."""
    if isinstance(vectors, list | tuple) and any(isinstance(v, Tensor) for v in vectors):
        vectors = torch.stack(list(vectors))
    if isinstance(vectors, Tensor):
        vectors = vectors.detach().cpu()
        return np.asarray(vectors.float() if vectors.dtype == torch.bfloat16 else vectors)
    return np.asarray(vectors)
