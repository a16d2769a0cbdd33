"""What one thread does to a model while another encodes: right vectors, or one line that says what to do."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.families import encode, texts
from tests.tiny import tiny
from torch import nn

from afterword import Method, bellm, classical, reba
from afterword.backbone.backbone import Backbone
from afterword.backbone.loading import load_backbone
from afterword.backbone.self_check import check
from afterword.errors import AfterwordError
from afterword.methods import token_prepending

TEXTS = texts()[3:6]
PATIENCE = 120  # seconds after which a thread has met a deadlock


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Backbone]:
    found: dict[str, Backbone] = {}

    def backbone(kind: str) -> Backbone:
        if kind not in found:
            found[kind] = load_backbone(tiny(kind, tmp_path_factory.mktemp(kind)))
        return copy.deepcopy(found[kind])

    return backbone


class Meanwhile:
    """Another thread does something once, when a forward comes to a module."""

    def __init__(self, module: nn.Module, do: Callable[[], Any]) -> None:
        self.do, self.armed = do, False
        module.register_forward_pre_hook(self)

    def __call__(self, module: nn.Module, args: Any) -> None:
        if self.armed:
            self.armed = False
            thread = threading.Thread(target=self.do)
            thread.start()
            thread.join()


@pytest.mark.parametrize("place", ["table", "layer 1"])
@pytest.mark.parametrize("name", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_attention_that_changes_during_a_forward_is_said_in_one_line(
    kind: str, name: str, place: str, loaded: Callable[[str], Backbone]
) -> None:
    backbone = loaded(kind)
    model: Any = backbone.model
    layers = next(m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == 3)
    module = model.get_input_embeddings() if place == "table" else layers[1]
    meanwhile = Meanwhile(module, lambda: model.set_attn_implementation(name))
    for method in (classical(), reba(2)):
        expected = encode(backbone, method, TEXTS)
        meanwhile.armed = True
        with pytest.raises(AfterwordError, match="set_attn_implementation only while no thread encodes") as error:
            encode(backbone, method, TEXTS)
        assert "\n" not in str(error.value) and not meanwhile.armed
        assert np.array_equal(encode(backbone, method, TEXTS), expected)


@pytest.mark.parametrize("rounds", [20, pytest.param(2000, marks=pytest.mark.soak)])
def test_attention_that_changes_all_the_time_never_gives_another_vector(
    rounds: int, loaded: Callable[[str], Backbone]
) -> None:
    backbone, over = loaded("llama"), threading.Event()
    model: Any = backbone.model
    expected = encode(backbone, classical(), TEXTS)

    def change() -> int:
        times = 0
        while not over.is_set():
            model.set_attn_implementation(("sdpa", "eager", "afterword")[times % 3])
            times += 1
        return times

    with ThreadPoolExecutor(1) as pool:
        changed = pool.submit(change)
        try:
            for _ in range(rounds):
                with suppress(AfterwordError):
                    assert np.array_equal(encode(backbone, classical(), TEXTS), expected)
        finally:
            over.set()
        assert changed.result(PATIENCE) > 3
    assert np.array_equal(encode(backbone, classical(), TEXTS), expected)


@pytest.mark.parametrize("rounds", [2, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("kind", "method"), [("llama", reba(2, "mean")), ("llama dynamic", classical()), ("t5", classical())]
)
def test_a_check_beside_threads_that_encode_changes_nothing(
    kind: str, method: Method, rounds: int, loaded: Callable[[str], Backbone]
) -> None:
    backbone, over = loaded(kind), threading.Event()
    expected = encode(backbone, method, TEXTS)

    def embed() -> list[np.ndarray]:
        torch.set_num_threads(1)
        found = []
        while not over.is_set():
            found.append(encode(backbone, method, TEXTS))
        return found

    with ThreadPoolExecutor(3) as pool:
        embedding = [pool.submit(embed) for _ in range(2)]
        try:
            checked = [pool.submit(check, backbone.model, backbone.tokenizer).result(PATIENCE) for _ in range(rounds)]
        finally:
            over.set()
        found = [vectors for one in embedding for vectors in one.result(PATIENCE)]
    assert len(found) > 2 and all(np.array_equal(vectors, expected) for vectors in found)
    assert all(replace(one.facts, checks={}) == replace(backbone.facts, checks={}) for one in checked)
    assert np.array_equal(encode(checked[0], method, TEXTS), expected)


@pytest.mark.parametrize("method", [token_prepending(), classical(states="normed:2"), bellm(last=1, couple="add")])
def test_layers_that_are_found_while_others_encode_disturb_nobody(
    method: Method, loaded: Callable[[str], Backbone]
) -> None:
    backbone, over = loaded("llama"), threading.Event()
    expected, alone = encode(backbone, classical(), TEXTS), encode(loaded("llama"), method, TEXTS)

    def embed() -> list[np.ndarray]:
        torch.set_num_threads(1)
        found = [encode(backbone, classical(), TEXTS)]
        while not over.is_set():
            found.append(encode(backbone, classical(), TEXTS))
        return found

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(embed) for _ in range(3)]
        try:
            for _ in range(3):
                vars(backbone).pop("stack", None)
                assert np.array_equal(encode(backbone, method, TEXTS), alone)
        finally:
            over.set()
        assert all(np.array_equal(found, expected) for thread in running for found in thread.result(PATIENCE))
