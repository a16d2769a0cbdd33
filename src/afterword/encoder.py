"""The façade: an `Encoder` is a model, a method and what is done to vectors afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .backbone import Backbone
from .errors import InputError
from .layout import Text
from .limits import Limits, OnEmpty, OnLong, count
from .look import attention_matrix, token_weights
from .methods import Method
from .post import Normalise, Post, Truncate, Unfitted
from .run import WINDOW, Array, check_method, known, refuse_blank, sentence_vectors, word_vectors
from .texts import check_conditions, check_texts, with_prompt, words_by_text


@dataclass
class Encoder:
    """Embed texts and words by any method.

    Args:
        backbone: the model.
        method: how a text becomes a vector.
        post: steps applied to every vector.
        max_length: tokens at most, template and special tokens included; None = the model's own limit.
        prompts: named instructions put in front of texts.
        default_prompt_name: which of them is used where none is named.
        similarity_fn_name: "cosine", "dot", "euclidean" or "manhattan".

    >>> encoder = Encoder.load("afterword-mini")
    >>> encoder.encode(["a text", "another"]).shape[0]
    2
    """

    backbone: Backbone
    method: Method
    post: tuple[Post, ...] = ()
    max_length: int | None = None
    prompts: dict[str, str] | None = None
    default_prompt_name: str | None = None
    similarity_fn_name: str = "cosine"

    def __post_init__(self) -> None:
        """Check the method against the model; say what has no effect."""
        self.max_length = self.max_length or self.backbone.facts.max_length
        check_method(self.backbone, self.method)

    @classmethod
    def load(
        cls,
        name: str | Path,
        method: Method | str | None = None,
        *,
        device: str | torch.device | None = None,
        dtype: torch.dtype | str | None = None,
        max_length: int | None = None,
        revision: str | None = None,
        trust_remote_code: bool = False,
        products: str = "float32",
    ) -> Encoder:
        """Load a model or a saved encoder.

        Args:
            name: a model on the Hugging Face hub, a folder (of a model, of an encoder that was saved, of
                sentence-transformers), or a model that comes with the package: "afterword-mini",
                "afterword-mini-bellm", "afterword-mini-distilled".
            method: None takes the folder's own; a plain model gets `classical` and says so. A string is parsed.
            device: None = a GPU where there is one.
            dtype: None = float32 on a CPU, the checkpoint's own on a GPU.
            max_length: tokens at most; None = the folder's or the model's own limit.
            revision: of the hub's repository.
            trust_remote_code: run the model's own code.
            products: "bfloat16" rounds what the products of linear layers read, on a CPU with AMX or AVX512-BF16;
                they are added up in float32. It is in the fingerprint and not saved: ask for it at every load.

        Raises:
            ModelError: the model cannot be loaded, or not run exactly.
            MethodError: the method does not fit it.
        """
        from .folder import load_encoder

        return load_encoder(cls, name, method, device=device, dtype=dtype, max_length=max_length, revision=revision,
                            trust_remote_code=trust_remote_code, products=products)  # fmt: skip

    def save(self, folder: str | Path) -> None:
        """Save as a sentence-transformers folder, which `load` reads too.

        Args:
            folder: made if it is not there.
        """
        from .folder import save_encoder

        save_encoder(self, Path(folder))

    @property
    def fitted(self) -> bool:
        """Whether nothing is left to `fit`."""
        return self.method.weigh.fitted and not any(isinstance(step, Unfitted) for step in self.post)

    def fit(
        self,
        texts: Sequence[Text],
        *,
        batch_tokens: int | None = None,
        show_progress_bar: bool | Callable[[int], object] = False,
    ) -> Encoder:
        """A new encoder with everything fitted that must see texts first, in bounded memory.

        First the method's weights, then each step in turn on the vectors that reach it; nothing is fitted twice.

        Args:
            texts: strings, or lists of token ids; those over `max_length` are cut.
            batch_tokens, show_progress_bar: as for `encode`; the texts are embedded once per step that is fitted.

        Raises:
            InputError: a text cannot be used, or they are too few.
        """
        checked = refuse_blank(check_texts(texts))
        limits = Limits(self.max_length, None, batch_tokens, "ignore", show_progress_bar=show_progress_bar)
        prompt, windows = self._prompt(None, None), range(0, len(checked), WINDOW)
        method = self.method
        if not method.weigh.fitted:
            method = replace(method, weigh=method.weigh.fit(checked, self.backbone.tokenizer, known(self.backbone)))
        post: tuple[Post, ...] = ()
        for step in self.post:
            if isinstance(step, Unfitted):
                step = step.fit(self._run([method], checked[i : i + WINDOW], limits, prompt, post)[0] for i in windows)
            post += (step,)
        return replace(self, method=method, post=post)

    def encode(
        self,
        texts: str | Sequence[Text],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        show_progress_bar: bool | Callable[[int], object] = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        conditions: Sequence[str] | None = None,
        on_long: OnLong = "warn",
        on_empty: OnEmpty = "error",
        out: Array | None = None,
    ) -> Any:
        """Sentence vectors.

        Args:
            texts: one string, or a list of strings or of lists of token ids.
            prompt_name: one of `prompts`, put in front of every text.
            prompt: the same, given here.
            batch_size: texts of a forward at most.
            batch_tokens: tokens of a forward, about; halved when memory runs out.
            show_progress_bar: on stderr; or a function that is told how many more texts are done.
            convert_to_numpy: an array; False gives a list of tensors.
            convert_to_tensor: one tensor.
            normalize_embeddings: to length 1.
            truncate_dim: keep the first components.
            conditions: one per text, for a template with {condition}.
            on_long: a text over `max_length` is cut with a warning, refused ("error"), or cut ("ignore").
            on_empty: an empty or blank text is refused, or gives a row of NaN.
            out: an (n, D) array to write to, a memory map for instance.

        Returns:
            (n, D) float32 in the order given; (D,) for one string.

        Raises:
            InputError: a text cannot be used; the message names it.
            TooLong: under on_long="error".
        """
        single = isinstance(texts, str)
        limits = Limits(self.max_length, batch_size, batch_tokens, on_long, on_empty, show_progress_bar)
        made = self._run(
            [self.method],
            [texts] if isinstance(texts, str) else texts,
            limits,
            self._prompt(prompt, prompt_name),
            self._steps(truncate_dim, normalize_embeddings),
            conditions,
            out,
        )[0]
        if convert_to_tensor:
            tensor = torch.from_numpy(made).to(self.backbone.device)
            return tensor[0] if single else tensor
        if not convert_to_numpy:
            return torch.from_numpy(made[0]) if single else list(torch.from_numpy(made))
        return made[0] if single else made

    def encode_query(self, texts: str | Sequence[Text], **options: Any) -> Array:
        """`encode` with the prompt named "query", where there is one."""
        return self._named("query", texts, options)

    def encode_document(self, texts: str | Sequence[Text], **options: Any) -> Array:
        """`encode` with the prompt named "document", "passage" or "corpus", where there is one."""
        return self._named("document", texts, options)

    def _named(self, name: str, texts: str | Sequence[Text], options: dict[str, Any]) -> Array:
        names = (name,) if name == "query" else (name, "passage", "corpus")
        if options.get("prompt") is None and options.get("prompt_name") is None:
            found = next((n for n in names if n in (self.prompts or {})), None)
            options |= {"prompt": ""} if found is None else {"prompt_name": found}  # never the default prompt
        return self.encode(texts, **options)  # type: ignore[no-any-return]

    def encode_many(
        self,
        texts: str | Sequence[Text],
        methods: Mapping[str, Method] | Sequence[Method],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        show_progress_bar: bool | Callable[[int], object] = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        on_long: OnLong = "warn",
        on_empty: OnEmpty = "error",
    ) -> dict[str, Array]:
        """Sentence vectors by several methods. Those that can share a forward do.

        A causal model's first copy of a text does not know of the second: classical, Echo and ReBA come from the
        forward with most copies, where the tokenizer puts nothing behind the text and no method has a template.
        Shared vectors differ from those of `encode` by float32 rounding, up to about 1e-6 of their length.

        Args:
            texts: as for `encode`.
            methods: by name; a list is named by the methods' own names.
            prompt_name, prompt, batch_size, batch_tokens, show_progress_bar, normalize_embeddings, truncate_dim,
                on_long, on_empty: as for `encode`.

        Returns:
            Per name, (n, D); (D,) for one string.
        """
        named = dict(methods) if isinstance(methods, Mapping) else {m.name: m for m in methods}
        for method in named.values():
            check_method(self.backbone, method)
        limits = Limits(self.max_length, batch_size, batch_tokens, on_long, on_empty, show_progress_bar)
        made = self._run(
            list(named.values()),
            [texts] if isinstance(texts, str) else texts,
            limits,
            self._prompt(prompt, prompt_name),
            self._steps(truncate_dim, normalize_embeddings),
        )
        single = isinstance(texts, str)
        return {name: found[0] if single else found for name, found in zip(named, made, strict=True)}

    def _run(
        self,
        methods: Sequence[Method],
        texts: Sequence[Text],
        limits: Limits,
        prompt: str | None,
        steps: Sequence[Post],
        conditions: Sequence[str] | None = None,
        out: Array | None = None,
    ) -> list[Array]:
        checked = check_texts(texts)
        methods = [replace(m, layout=with_prompt(m.layout, prompt)) for m in methods]
        width = [self._width(m, steps) for m in methods]
        if out is not None and out.shape != (len(checked), width[0]):
            raise InputError(
                f"out has the shape {out.shape}: {len(checked)} texts of this encoder need {(len(checked), width[0])}"
            )
        return sentence_vectors(
            self.backbone, methods, checked, limits,
            post=steps, conditions=check_conditions(conditions), out=None if out is None else [out], width=width,
        )  # fmt: skip

    def _prompt(self, prompt: str | None, name: str | None) -> str | None:
        """The instruction that goes in front; as in sentence-transformers, `prompt` goes before `prompt_name`."""
        name = name if name is not None else self.default_prompt_name
        if prompt is not None or name is None:
            return prompt
        if name not in (self.prompts or {}):
            raise InputError(f"no prompt is named {name!r}: there are {', '.join(self.prompts or {}) or 'none'}")
        return (self.prompts or {})[name]

    def _steps(self, truncate_dim: int | None, normalise: bool) -> tuple[Post, ...]:
        truncate_dim = count("truncate_dim", truncate_dim)
        cut = (Truncate(truncate_dim),) if truncate_dim is not None else ()
        return (*self.post, *cut, *((Normalise(),) if normalise else ()))

    def encode_words(
        self,
        texts: str | Sequence[Text],
        words: Sequence[Any],
        *,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        normalize_embeddings: bool = False,
        on_long: OnLong = "warn",
    ) -> Any:
        """Word vectors in context; a word of several tokens is the mean of theirs (ReBA, Algorithm 2).

        Args:
            texts: one string, or a list of strings or of lists of token ids.
            words: for one string, its words; for a list, one word, or a list of words, per text. A word is a
                string, (string, n) for its n-th occurrence from 0, or a span of characters (start, end) (of tokens,
                in a text of ids).
            batch_size, batch_tokens, normalize_embeddings, on_long: as for `encode`.

        Returns:
            For a list with one word per text, (n, D); with lists of words, a list of (words, D) arrays; for one
            string, (words, D).

        Raises:
            WordNotFound: a word is not in its text, or was cut off with its end.
        """
        single = isinstance(texts, str)
        listed = check_texts([texts] if isinstance(texts, str) else texts)
        per_text, one_each = words_by_text(words, listed, single)
        limits = Limits(self.max_length, batch_size, batch_tokens, on_long)
        steps = self._steps(None, normalize_embeddings)
        rows = word_vectors(self.backbone, self.method, listed, per_text, limits, steps)
        if one_each:
            return np.concatenate(rows) if rows else np.zeros((0, self.dimension), np.float32)
        return rows[0] if single else rows

    def weights(self, text: Text) -> tuple[list[str], Array]:
        """How much each token of a text counts.

        Args:
            text: one string, or one list of token ids.

        Returns:
            The n tokens as the model reads them, template, copies and special tokens included; weights (n,).
        """
        checked = check_texts([text])[0]
        return token_weights(self.backbone, self.method, checked, self.max_length)

    def attention(self, text: Text) -> tuple[list[str], Array]:
        """Algorithm 1 of ReBA: the maximum over layers and heads of (A + A^T) / 2.

        Args:
            text: one string, or one list of token ids.

        Returns:
            The n tokens as the model reads them; the matrix (n, n), of triangle="upper" only the part k >= i.

        Raises:
            MethodError: the encoder's method is not `reba`.
        """
        checked = check_texts([text])[0]
        return attention_matrix(self.backbone, self.method, checked, self.max_length)

    def similarity(self, a: Array, b: Array) -> Array:
        """How similar each row of ``a`` (n, D) is to each of ``b`` (m, D), by `similarity_fn_name`.

        Returns:
            (n, m) float32; larger is more similar (distances are negated).
        """
        from .similarity import similarity

        return similarity(a, b, self.similarity_fn_name)

    @cached_property
    def dimension(self) -> int:
        """D, the width of a vector."""
        return self._width(self.method, self.post)

    def _width(self, method: Method, steps: Sequence[Post]) -> int:
        table = method.states.kind == "static"
        width = self.backbone.model.get_input_embeddings().embedding_dim if table else self.backbone.facts.width  # type: ignore[operator]
        probe = torch.zeros(1, int(width))
        for step in steps:
            probe = step(probe)
        return int(probe.shape[1])

    def get_embedding_dimension(self) -> int:
        """D, under sentence-transformers' name."""
        return self.dimension

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.backbone.device

    @property
    def revision(self) -> str | None:
        """The hub's commit that the model came from, where that is known."""
        return getattr(self.backbone.model.config, "_commit_hash", None)

    @property
    def fingerprint(self) -> str:
        """Names everything that a vector depends on: two encoders with one fingerprint give the same vectors."""
        from .fingerprint import fingerprint

        return fingerprint(self)
