"""The façade: an `Encoder` is a model, a method and what is done to vectors afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .encode.explain import attention_matrix, token_weights
from .encode.limits import Limits, OnEmpty, OnLong
from .encode.options import SENTENCES, Form, also_called, choose_prompt, refuse_others, several, steps_of
from .encode.outputs import WINDOW, Array
from .encode.processes import Workers, workers
from .encode.sentence_transformers_interface import Interface
from .encode.sentences import sentence_vectors
from .encode.token_states import token_states
from .encode.words import word_vectors
from .files.fingerprint import fingerprint
from .files.parts import Parts
from .files.read_encoder import read_encoder
from .files.write_encoder import write_encoder
from .methods import Method
from .methods.method import by_name, check_method
from .post import Post, Unfitted
from .text.inputs import check_conditions, check_texts, refuse_blank, with_prompt, words_by_text
from .text.layout import Text


@dataclass
class Encoder(Interface, Parts):
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
        token: bool | str | None = None,
        cache_folder: str | Path | None = None,
        local_files_only: bool = False,
        subfolder: str = "",
        model_kwargs: dict[str, Any] | None = None,
        quantization_config: Any = None,
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
            revision: a branch, tag or commit of the hub's repository.
            trust_remote_code: run the model's own code.
            products: "bfloat16" rounds what the products of linear layers read, on a CPU with AMX or AVX512-BF16;
                they are added up in float32. It is in the fingerprint and not saved: ask for it at every load.
            token: for models of the hub that need one; None = the one that is logged in.
            cache_folder: where files of the hub are kept; None = the usual place.
            local_files_only: fetch nothing from the hub.
            subfolder: of the folder or repository.
            model_kwargs: handed to transformers when it builds the model; what would break how it is run is refused.
            quantization_config: of transformers, ``BitsAndBytesConfig`` for instance.

        Raises:
            ModelError: the model cannot be loaded, or not run exactly.
            MethodError: the method does not fit it.
        """
        parts = read_encoder(
            name, method, device=device, dtype=dtype, max_length=max_length, revision=revision,
            trust_remote_code=trust_remote_code, token=token, cache_folder=cache_folder,
            local_files_only=local_files_only, subfolder=subfolder, model_kwargs=model_kwargs,
            quantization_config=quantization_config, products=products,
        )  # fmt: skip
        return cls(**vars(parts))

    def save(self, folder: str | Path) -> None:
        """Save as a sentence-transformers folder, which `load` reads too.

        Args:
            folder: made if it is not there; a leading ``~`` is the home folder.
        """
        write_encoder(self, folder)

    def sentence_transformer(self, **options: Any) -> Any:
        """This encoder as a SentenceTransformer that shares its weights: for tools that ask for that very class.

        BERTopic and KeyBERT do; training does; so does everything that `encode` refuses by name. Its vectors are
        those of `encode`, up to float32 rounding.

        Args:
            options: for SentenceTransformer; ``device`` defaults to the encoder's own.

        Raises:
            MissingExtra: sentence-transformers is not installed.
            ModelError: a step has no module there.
        """
        from .st import sentence_transformer

        return sentence_transformer(self, **options)

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
        method, windows = self.method, range(0, len(checked), WINDOW)
        if not method.weigh.fitted:
            method = replace(
                method, weigh=method.weigh.fit(checked, self.backbone.tokenizer, self.backbone.vocabulary_size)
            )
        prompted = self._prompted(method, None, None)
        post: tuple[Post, ...] = ()
        for step in self.post:
            if isinstance(step, Unfitted):
                parts = (checked[i : i + WINDOW] for i in windows)
                step = step.fit(sentence_vectors(self.backbone, [prompted], p, limits, post)[0] for p in parts)
            post += (step,)
        return replace(self, method=method, post=post)

    @also_called(inputs="texts", sentences="texts")
    def encode(
        self,
        texts: str | Sequence[Text],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | Callable[[int], object] | None = False,
        output_value: str | None = SENTENCES,
        precision: str | None = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        pool: Workers | None = None,
        chunk_size: int | None = None,
        *,
        batch_tokens: int | None = None,
        conditions: Sequence[str] | None = None,
        on_long: OnLong = "warn",
        on_empty: OnEmpty = "error",
        out: Array | None = None,
        **others: Any,
    ) -> Any:
        """Sentence vectors. Takes all arguments of sentence-transformers' `encode`, in its order.

        Args:
            texts: one string, or a list of strings or of lists of token ids.
            prompt_name: one of `prompts`, put in front of every text; not read where `prompt` is given.
            prompt: the same, given here.
            batch_size: texts of a forward at most.
            show_progress_bar: on stderr; or a function that is told how many more texts are done.
            output_value: "token_embeddings" gives each text's states (n, D), those of all n tokens that the model
                reads; None gives them with "input_ids" and "sentence_embedding".
            precision: "int8", "uint8", "binary" or "ubinary" by sentence-transformers' `quantize_embeddings`, which
                takes the ranges of the two former from the vectors of this call.
            convert_to_numpy: an array; False gives a list of tensors.
            convert_to_tensor: one tensor; goes before `convert_to_numpy`.
            device: the model's own, or a list of devices: one process each, for this call.
            normalize_embeddings: to length 1.
            truncate_dim: keep the first components.
            pool: processes that run already, of `start_multi_process_pool`.
            chunk_size: texts that a process gets at once.
            batch_tokens: tokens of a forward, about; fewer once memory has run out.
            conditions: one per text, for a template with {condition}.
            on_long: a text over `max_length` is cut with a warning, refused ("error"), or cut ("ignore").
            on_empty: an empty or blank text is refused, or gives a row of NaN.
            out: an (n, D) array to write to, a memory map for instance.
            others: refused by name.

        Returns:
            (n, D) float32 in the order given; (D,) for one string.

        Raises:
            InputError: a text or an argument cannot be used; the message names it.
            TooLong: under on_long="error".
            MissingExtra: a precision, without sentence-transformers.
        """
        refuse_others(others)
        many, single = several(self.backbone, device, pool, chunk_size), isinstance(texts, str)
        form = Form(output_value, precision, convert_to_numpy, convert_to_tensor, self.device)
        form.check(
            several=many, out=out, normalize_embeddings=normalize_embeddings, truncate_dim=truncate_dim,
            on_empty=on_empty == "nan",
        )  # fmt: skip
        method = self._prompted(self.method, prompt, prompt_name)
        steps = steps_of(self.backbone, [method], self.post, truncate_dim, normalize_embeddings)
        checked, given = check_texts([texts] if single else texts), check_conditions(conditions)
        limits = Limits(self.max_length, batch_size, batch_tokens, on_long, on_empty, show_progress_bar or False)
        if output_value != SENTENCES:
            return form.of_tokens(token_states(self.backbone, method, checked, limits, steps, given), single)
        if many:
            with workers(self.backbone, pool, device) as processes:
                made = processes.vectors(self.backbone, method, checked, limits, steps, given, out, chunk_size)
        else:
            made = sentence_vectors(self.backbone, [method], checked, limits, steps, given, out)[0]
        return form.of(made, single)

    def _prompted(self, method: Method, prompt: str | None, name: str | None) -> Method:
        chosen = choose_prompt(self.prompts, self.default_prompt_name, prompt, name)
        return replace(method, layout=with_prompt(method.layout, chosen)) if chosen else method

    @also_called(inputs="texts", sentences="texts")
    def encode_query(
        self, texts: str | Sequence[Text], prompt_name: str | None = None, prompt: str | None = None,
        *args: Any, **options: Any,
    ) -> Any:  # fmt: skip
        """`encode` with the prompt named "query", where there is one."""
        return self._named(("query",), texts, prompt_name, prompt, *args, **options)

    @also_called(inputs="texts", sentences="texts")
    def encode_document(
        self, texts: str | Sequence[Text], prompt_name: str | None = None, prompt: str | None = None,
        *args: Any, **options: Any,
    ) -> Any:  # fmt: skip
        """`encode` with the prompt named "document", "passage" or "corpus", where there is one."""
        return self._named(("document", "passage", "corpus"), texts, prompt_name, prompt, *args, **options)

    def _named(
        self, names: Sequence[str], texts: Any, name: str | None, prompt: str | None, *args: Any, **options: Any
    ) -> Any:
        if prompt is None and name is None:
            name = next((n for n in names if n in (self.prompts or {})), None)
            prompt = "" if name is None else None  # never the default prompt
        return self.encode(texts, name, prompt, *args, **options)

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

        Raises:
            MethodError: two methods of a list have one name.
        """
        named = by_name(methods)
        for method in named.values():
            check_method(self.backbone, method)
        single = isinstance(texts, str)
        made = sentence_vectors(
            self.backbone,
            [self._prompted(method, prompt, prompt_name) for method in named.values()],
            check_texts([texts] if single else texts),
            Limits(self.max_length, batch_size, batch_tokens, on_long, on_empty, show_progress_bar),
            steps_of(self.backbone, list(named.values()), self.post, truncate_dim, normalize_embeddings),
        )
        return {name: found[0] if single else found for name, found in zip(named, made, strict=True)}

    def encode_words(
        self,
        texts: str | Sequence[Text],
        words: Sequence[Any],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        show_progress_bar: bool | Callable[[int], object] = False,
        normalize_embeddings: bool = False,
        on_long: OnLong = "warn",
    ) -> Any:
        """Word vectors in context; a word of several tokens is the mean of theirs (ReBA, Algorithm 2).

        Args:
            texts: one string, or a list of strings or of lists of token ids.
            words: for one string, its words; for a list, one word, or a list of words, per text. A word is a
                string, (string, n) for its n-th occurrence from 0, or a span of characters (start, end) (of tokens,
                in a text of ids).
            prompt_name, prompt, batch_size, batch_tokens, show_progress_bar, normalize_embeddings, on_long: as for
                `encode`.

        Returns:
            For a list with one word per text, (n, D); with lists of words, a list of (words, D) arrays; for one
            string, (words, D).

        Raises:
            WordNotFound: a word is not in its text, which is seen before any text is run; or it was cut off.
        """
        single = isinstance(texts, str)
        listed = check_texts([texts] if isinstance(texts, str) else texts)
        per_text, one_each = words_by_text(words, listed, single)
        method = self._prompted(self.method, prompt, prompt_name)
        limits = Limits(self.max_length, batch_size, batch_tokens, on_long, show_progress_bar=show_progress_bar)
        steps = steps_of(self.backbone, [method], self.post, None, normalize_embeddings)
        rows = word_vectors(self.backbone, method, listed, per_text, limits, steps)
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

    @property
    def fingerprint(self) -> str:
        """Names everything that a vector depends on: two encoders with one fingerprint give the same vectors."""
        return fingerprint(self)
