"""Promise 5 (nothing is silent): every argument changes something that can be seen, or is refused by its name.

An argument that has no effect together with another one (prompt_name with prompt, precision with token embeddings) is
ignored, as in sentence-transformers.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny import tiny

from afterword import Encoder, classical
from afterword.encode.spans import SpanVectors
from afterword.errors import AfterwordError, TextsCut

TEXTS = ["a dog", "two dogs and a cat", "x" * 40, "a dog"]
PROMPTS = {"query": "find: ", "document": "text: "}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("llama", tmp_path_factory.mktemp("options"))


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return Encoder.load(folder, classical())


@pytest.fixture
def prompted(encoder: Encoder) -> Encoder:
    return Encoder(encoder.backbone, classical(), max_length=30, prompts=PROMPTS)


def seen(call: Callable[..., Any], *args: Any, forwards: list[int], **options: Any) -> Any:
    """All that a caller can see: what comes back, its types, what is warned, how many forwards run, what is told."""
    forwards.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = call(*args, **options)
        except AfterwordError as e:
            return type(e), str(e)
    return look(made), [str(w.message) for w in caught], list(forwards)


def look(made: Any) -> Any:
    if isinstance(made, dict):
        return {name: look(value) for name, value in made.items()}
    if isinstance(made, SpanVectors):
        return look(made.vectors), made.spans
    if isinstance(made, list):
        return [look(one) for one in made]
    kind = type(made), made.dtype, tuple(made.shape)
    return *kind, np.asarray(made).tobytes()


@pytest.fixture
def forwards(encoder: Encoder):
    """How many tokens each forward had."""
    sizes: list[int] = []
    handle = encoder.backbone.model.register_forward_pre_hook(
        lambda _, args, given: sizes.append(given["input_ids"].numel()), with_kwargs=True
    )
    yield sizes
    handle.remove()


SEEN: dict[str, Any] = {
    "prompt_name": "query",
    "prompt": "p: ",
    "batch_size": 1,
    "batch_tokens": 8,
    "output_value": "token_embeddings",
    "precision": "binary",
    "convert_to_numpy": False,
    "convert_to_tensor": True,
    "normalize_embeddings": True,
    "truncate_dim": 7,
    "on_long": "ignore",
    "show_progress_bar": None,  # told apart by `test_progress_is_told`
    "on_empty": None,  # by `test_empty_texts`
    "out": None,  # by `test_out_is_written_to`
    "pool": None,  # in tests/test_processes.py
    "conditions": ["size", "colour", "size", "use"],
    "device": ["nowhere"],
    "chunk_size": None,  # in tests/encode/test_processes.py
    "chunks": "sentences",
    "tokens": 5,
    "late": False,
    "overlap": 1,
}


def options_of(call: Any) -> list[str]:
    """The arguments that are options: all but texts, words, methods, and what gathers the rest."""
    return [
        name
        for name, parameter in inspect.signature(call).parameters.items()
        if name not in ("self", "cls", "texts", "words", "methods", "name", "others")
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]


CHUNKED = ["a dog. two dogs and a cat. a c. the end of it all.", "x" * 40]
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "encode": ((TEXTS,), {}),
    "encode_many": ((TEXTS, {"one": classical(), "last": classical("last")}), {}),
    "encode_words": ((TEXTS, ["dog", "cat", "x", "dog"]), {}),
    "encode_chunks": ((CHUNKED,), {"tokens": 9}),
    "encode_tokens": ((TEXTS,), {}),
}
"""Positional arguments, and options that the others need."""


@pytest.mark.parametrize(
    ("call", "option"), [(call, option) for call in CALLS for option in options_of(getattr(Encoder, call))]
)
def test_every_option_changes_something(prompted, forwards, call: str, option: str) -> None:
    value = SEEN[option]  # a new option needs a row there
    if value is None:
        return
    args, needed = CALLS[call]
    needed = needed | ({"late": option != "overlap"} if call == "encode_chunks" else {})
    changed = seen(getattr(prompted, call), *args, forwards=forwards, **needed | {option: value})
    assert changed != seen(getattr(prompted, call), *args, forwards=forwards, **needed)
    if isinstance(changed[0], type):
        assert option in changed[1], "refused, but not by its name"


@pytest.mark.parametrize("call", ["encode", "encode_query", "encode_document"])
def test_progress_is_told(prompted, call: str) -> None:
    done: list[int] = []
    getattr(prompted, call)(TEXTS, show_progress_bar=done.append, on_long="ignore")
    assert sum(done) == len(TEXTS)


def test_empty_texts(prompted) -> None:
    with pytest.raises(AfterwordError, match="on_empty"):
        prompted.encode(["a", ""])
    assert np.isnan(prompted.encode(["a", ""], on_empty="nan")[1]).all()


def test_out_is_written_to(prompted) -> None:
    out = np.empty((1, 64), np.float32)
    assert prompted.encode(["a"], out=out) is out and np.isfinite(out).all()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"truncate_dim": 65}, "truncate_dim=65: vectors have 64"),
    ({"truncate_dim": 0}, "truncate_dim=0"),
    ({"device": "meta"}, "device='meta'"),
    ({"pool": {}}, "pool"),
    ({"conditions": ["a"] * 4}, "conditions"),
    ({"prompt_name": "nobody"}, "no prompt is named 'nobody'"),
    ({"precision": "int4"}, "precision='int4'"),
    ({"output_value": "sentence"}, "output_value='sentence'"),
    ({"task": "query"}, r"'task'; encoder\.sentence_transformer\(\)"),
    ({"no_such_option": 1}, "'no_such_option'"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "named"), REFUSED, ids=[", ".join(o) for o, _ in REFUSED])
def test_what_cannot_be_used_is_refused_by_its_name(prompted, options, named) -> None:
    with pytest.raises(AfterwordError, match=named):
        prompted.encode(TEXTS, **options)


LOADED: dict[str, Any] = {
    "device": "nowhere",
    "dtype": "float64",
    "max_length": 5,
    "revision": "main",
    "subfolder": "nowhere",
    "model_kwargs": {"rms_norm_eps": 0.1},
    "method": "classical:pool=last",
    # of the hub, and of quantised models: tests/test_source.py; the others: tests/test_loading.py, test_products.py
    **dict.fromkeys(
        ("token", "cache_folder", "local_files_only", "quantization_config", "trust_remote_code", "products")
    ),
}


@pytest.mark.parametrize("option", options_of(Encoder.load))
def test_every_option_of_load(folder, option: str) -> None:
    value = LOADED[option]
    if value is None:
        return
    if option in ("device", "revision", "subfolder"):  # of a folder, on this machine
        with pytest.raises(AfterwordError, match=value):
            Encoder.load(folder, classical(), **{option: value})
        return
    other = Encoder.load(folder, **{"method": classical(), option: value})
    changed, same = (one.encode(TEXTS, on_long="ignore") for one in (other, Encoder.load(folder, classical())))
    assert look(changed) != look(same)


def test_what_is_not_read_is_what_sentence_transformers_does_not_read(prompted) -> None:
    """As documented there and here; their own tools give both of each pair."""
    pytest.importorskip("sentence_transformers")
    theirs = prompted.sentence_transformer()
    for options in (
        {"prompt": "p: ", "prompt_name": "query"},
        {"convert_to_tensor": True, "convert_to_numpy": True},
        {"convert_to_tensor": True, "convert_to_numpy": False},
        {"output_value": "token_embeddings", "convert_to_tensor": True},
        {"chunk_size": None, "task": None, "pool": None},
    ):
        with pytest.warns(TextsCut):
            ours = prompted.encode(TEXTS, **options)
        wanted = theirs.encode(TEXTS, **options)
        assert type(ours) is type(wanted), options
        for a, b in zip(ours, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=2e-5)
