"""An encoder as a model of mteb, so that ``mteb.evaluate(as_mteb(encoder), tasks)`` runs any of its tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..encode.similarity import pairwise, similarity
from ..encoder import Encoder
from ..errors import InputError, MissingExtra
from ..methods import Ensemble, classical
from ..methods.serialize import to_json
from ..post import spelled
from ..tasks.task import Array, Embedder, as_read

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
"""A model's name on the Hugging Face hub."""

FALLBACKS = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""The names that sentence-transformers gives prompts, tried if mteb's own order of names finds none."""


def as_mteb(encoder: Encoder, name: str | None = None) -> MtebModel:
    """An encoder as a model of mteb.

    mteb passes a `batch_size` of 32 to every model. It is ignored: an encoder's batches have a budget of tokens, and
    its vectors do not depend on the batches. Equal texts are embedded once; a blank text is replaced by ".".

    Args:
        encoder: the encoder.
        name: name in results, as "organisation/model"; None = the model's name on the hub, or "local/" and the name of
            its folder.

    Returns:
        A model of mteb's `EncoderProtocol`. Its `ModelMeta` has the encoder's fingerprint as revision; its
        `experiment_kwargs` describe the method by its differences from a plain mean.

    Raises:
        MissingExtra: mteb is not installed.

    >>> from afterword import Encoder
    >>> as_mteb(Encoder.load("afterword-mini", "reba:copies=2")).mteb_model_meta.experiment_kwargs["layout.copies"]
    2
    """
    require_mteb()
    return MtebModel(encoder, meta_of(encoder, name), encoder.prompts or {}, encoder.similarity_fn_name)


def require_mteb() -> None:
    """Check that mteb is installed, without importing it, which takes seconds.

    Raises:
        MissingExtra: mteb is not installed.
    """
    if find_spec("mteb") is None:
        raise MissingExtra("mteb", "evaluate")


@dataclass(eq=False)
class MtebModel:
    """A model of mteb (its `EncoderProtocol`) that takes vectors from an embedder.

    Args:
        embedder: the embedder; if there are prompts, its `encode` must take `prompt_name` and `prompt`.
        mteb_model_meta: the `ModelMeta` that mteb writes beside the scores.
        prompts: prompts by name: of a task or a type of task, optionally with "-query" or "-document"; or of a prompt
            type.
        similarity_fn_name: "cosine", "dot", "euclidean" or "manhattan".
    """

    embedder: Embedder
    mteb_model_meta: Any
    prompts: Mapping[str, str] = field(default_factory=dict)
    similarity_fn_name: str = "cosine"

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        precision: str | None = None,
        show_progress_bar: bool = False,
        batch_size: int | None = None,
        **options: Any,
    ) -> Array:
        """Sentence vectors, with the signature that mteb calls.

        Args:
            inputs: mteb's batches; "text" holds the texts, n in all.
            task_metadata: metadata of the task, which select a prompt.
            hf_split, hf_subset: not used.
            prompt_type: "query", "document" or None.
            precision: only "float32" or None.
            show_progress_bar: show a progress bar on stderr; needs an embedder that has this option, as `Encoder`.
            batch_size: not used.
            options: further options of `Encoder.encode`, as in
                ``mteb.evaluate(..., encode_kwargs={"batch_tokens": 4096})``.

        Returns:
            (n, D) float32.
        """
        if precision not in (None, "float32"):
            raise InputError(f"precision={precision!r}: vectors are float32; quantise what encode returns")
        texts = [as_read(text) for batch in inputs for text in batch["text"]]
        options |= self._prompted(task_metadata, prompt_type)
        if show_progress_bar:  # False is not passed on: an embedder need not have the option
            options["show_progress_bar"] = True
        return np.asarray(self.embedder.encode(texts, **options))

    def _prompted(self, task_metadata: Any, prompt_type: Any) -> dict[str, Any]:
        """The option of `encode` that sets a task's prompt: by mteb's names, else by sentence-transformers'."""
        if not self.prompts:
            return {}
        from mteb.models.abs_encoder import get_prompt_name

        kind = getattr(prompt_type, "value", prompt_type)
        name = get_prompt_name(self.prompts, task_metadata, prompt_type)
        name = name or next((n for n in FALLBACKS.get(kind, ()) if n in self.prompts), None)
        if name is not None:
            return {"prompt_name": name}
        return {} if kind is None else {"prompt": ""}  # as `Encoder.encode_query`: never the default prompt

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """The similarity of each of n vectors with each of m (n, m), by `similarity_fn_name`."""
        return torch.from_numpy(similarity(_array(embeddings1), _array(embeddings2), self.similarity_fn_name))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """The similarity of vectors of equal index (n,)."""
        return torch.from_numpy(pairwise(_array(embeddings1), _array(embeddings2), self.similarity_fn_name))


def meta_of(encoder: Encoder, name: str | None = None) -> Any:
    """The `ModelMeta` of an encoder, which mteb writes beside its scores; nothing is fetched from the hub.

    Args:
        encoder: the encoder.
        name: as for `as_mteb`.
    """
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    model: Any = encoder.backbone.model
    weights = list(model.parameters())
    table = model.get_input_embeddings().weight
    return ModelMeta(
        loader=None,
        name=name or _name(str(getattr(model.config, "_name_or_path", ""))),
        revision=encoder.fingerprint,
        release_date=None,
        languages=None,
        n_parameters=sum(w.numel() for w in weights),
        n_embedding_parameters=table.numel(),
        memory_usage_mb=round(sum(w.numel() * w.element_size() for w in weights) / 2**20, 1),
        max_tokens=encoder.max_length,
        embed_dim=encoder.dimension,
        license=None,
        open_weights=None,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch", "Transformers"],
        similarity_fn_name=ScoringFunction(encoder.similarity_fn_name),
        use_instructions=bool(encoder.prompts),
        training_datasets=None,
        experiment_kwargs=settings(encoder),
    )


def settings(encoder: Encoder) -> dict[str, Any]:
    """The `experiment_kwargs` of an encoder: its differences from the plain mean, without nesting.

    Returns:
        "method": its name; fields of its layout, states, weigh and sight that differ from `classical`, with keys as
        "layout.copies", or "0.layout.copies" for the first of an ensemble; "post" as `parse_post` reads it;
        "max_length".
    """
    method, plain = encoder.method, _flat(to_json(classical()))
    changed: dict[str, Any] = {}
    for i, member in enumerate(method.members):
        start = f"{i}." if isinstance(method, Ensemble) else ""
        own = _flat(to_json(member)).items()
        changed |= {f"{start}{key}": value for key, value in own if key != "name" and value != plain.get(key)}
    if isinstance(method, Ensemble):
        changed |= {key: value for key, value in to_json(method).items() if key in ("join", "weights", "normalise")}
    return {"method": encoder.method.name, **changed, "post": spelled(encoder.post), "max_length": encoder.max_length}


def _flat(described: Mapping[str, Any]) -> dict[str, Any]:
    parts = {key: value if isinstance(value, Mapping) else {"": value} for key, value in described.items()}
    return {f"{key}.{name}".rstrip("."): v for key, part in parts.items() for name, v in part.items()}


def _name(path: str) -> str:
    """A model's name on the hub, also for a path in the hub's cache; otherwise "local/" and the folder's name."""
    cached = next((part for part in Path(path).parts if part.startswith("models--")), None)
    if cached is not None:
        return cached.removeprefix("models--").replace("--", "/", 1)
    if HUB_NAME.fullmatch(path) and not Path(path).exists():
        return path
    return f"local/{Path(path).name or 'model'}"


def _array(vectors: Any) -> Array:
    return vectors.detach().cpu().float().numpy() if isinstance(vectors, Tensor) else np.asarray(vectors)
