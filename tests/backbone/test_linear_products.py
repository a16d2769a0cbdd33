"""Products by each kernel, and what is said where bfloat16 cannot be had."""

import copy
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from tests.tiny import tiny
from transformers.pytorch_utils import Conv1D

from afterword import Encoder, classical
from afterword.backbone import linear_products as products
from afterword.backbone.linear_packed import PackedLinears
from afterword.backbone.linear_products import (
    check_products,
    forced,
    in_bfloat16,
    lacks_bfloat16,
    pack,
    packed_linear,
    plain_linear,
    precision_lock,
    processor,
    register_bfloat16,
    setting,
)
from afterword.errors import ModelError

CPU = torch.device("cpu")
needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


def test_plain_is_what_the_layers_do():
    torch.manual_seed(0)
    x, linear, conv = torch.randn(1, 40, 32), torch.nn.Linear(32, 48), Conv1D(48, 32)
    with torch.no_grad():
        assert torch.equal(plain_linear(x, linear.weight, linear.bias, False), linear(x))
        assert torch.equal(plain_linear(x, conv.weight, conv.bias, True), conv(x))


@needs_onednn
def test_packed_is_the_same_product():
    x, w, b = torch.randn(1, 40, 32), torch.randn(48, 32), torch.randn(48)
    torch.testing.assert_close(packed_linear(x, pack(w), b), F.linear(x, w, b), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        packed_linear(x, pack(w), b, ("gelu", "none")), F.gelu(F.linear(x, w, b)), rtol=1e-5, atol=1e-5
    )


def test_the_environment(monkeypatch):
    for value, kernel in (("plain", "plain"), ("packed", "packed"), ("", None), ("fast", None)):
        monkeypatch.setenv("AFTERWORD_KERNELS", value)
        assert forced() == kernel
    before = setting()
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert setting() != before
    assert processor()


@pytest.mark.parametrize(
    ("asked", "device", "dtype", "kernels", "said"),
    [
        ("float16", "cpu", torch.float32, "", r"products='float16': choose float32 or bfloat16"),
        ("bfloat16", "cuda", torch.float32, "", r"is for CPUs, and the model is on cuda: use dtype='bfloat16' there"),
        ("bfloat16", "cpu", torch.bfloat16, "", r"for float32 models, and this one is bfloat16"),
        ("bfloat16", "cpu", torch.float32, "plain", r"AFTERWORD_KERNELS=plain forbids them: unset it"),
    ],
)
def test_what_does_not_go_together(monkeypatch, asked, device, dtype, kernels, said):
    monkeypatch.setenv("AFTERWORD_KERNELS", kernels)
    with pytest.raises(ModelError, match=said):
        check_products(asked, torch.device(device), dtype)


def test_a_processor_without_it_is_named(monkeypatch):
    """On one that has it, the two questions are answered with no; on others they answer for themselves."""
    monkeypatch.delenv("AFTERWORD_KERNELS", raising=False)
    check_products("float32", CPU, torch.float32)
    if lacks_bfloat16() is None:
        check_products("bfloat16", CPU, torch.float32)
        for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
            monkeypatch.setattr(torch.cpu, name, lambda: False)
    with pytest.raises(ModelError) as refused:
        check_products("bfloat16", CPU, torch.float32)
    said = str(refused.value)
    assert "neither AMX nor AVX512-BF16" in said and processor() in said and "\n" not in said
    assert said.endswith("leave it out for exact float32")


def test_the_setting_is_put_back():
    place = torch.backends.mkldnn.matmul
    before = place.fp32_precision
    with in_bfloat16():
        assert place.fp32_precision == "bf16"
    assert place.fp32_precision == before
    with pytest.raises(KeyError), in_bfloat16():
        raise KeyError
    assert place.fp32_precision == before


def test_forwards_wait_for_each_other_while_somebody_uses_it(monkeypatch):
    monkeypatch.setattr(products, "_USERS", type(products._USERS)())

    class User:
        pass

    assert precision_lock() is not products._LOCK
    user = User()
    register_bfloat16(user)
    order = []

    def other() -> None:
        with precision_lock():
            order.append("other")

    with precision_lock(), precision_lock():  # one thread may be inside twice
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]
    del user
    assert precision_lock() is not products._LOCK


def test_an_encoder_says_how_its_products_are_made(tmp_path):
    """It is in the fingerprint and travels with copies; a processor that lacks them refuses when loading."""
    folder = tiny("gpt2", tmp_path / "model")
    encoder = Encoder.load(folder, classical())
    assert encoder.backbone.products == "float32"
    if (missing := lacks_bfloat16()) is not None:
        with pytest.raises(ModelError) as refused:
            Encoder.load(folder, classical(), products="bfloat16")
        assert str(refused.value) == f"products='bfloat16' cannot be had: {missing}; leave it out for exact float32"
        return
    coarse = Encoder.load(folder, classical(), products="bfloat16")
    assert coarse.fingerprint != encoder.fingerprint
    texts = ["a text", "another one, which is longer", "x" * 130]
    a, b = encoder.encode(texts), coarse.encode(texts)
    assert 0 < abs(a - b).max() <= 2e-2 * abs(a).max()
    alone = [coarse.encode(text) for text in texts]
    assert all((row == one).all() for row, one in zip(b, alone, strict=True))
    assert (pickle.loads(pickle.dumps(coarse)).encode(texts) == b).all()
    coarse.save(tmp_path / "saved")
    assert Encoder.load(tmp_path / "saved").backbone.products == "float32"
    assert Encoder.load(tmp_path / "saved", products="bfloat16").fingerprint == coarse.fingerprint


def test_products_travel_with_copies_and_are_in_the_fingerprint(tmp_path):
    """Seen on every processor: how they are named, not what they give."""
    encoder = Encoder.load(tiny("gpt2", tmp_path / "model"), classical())
    before = encoder.fingerprint
    encoder.backbone.packed = PackedLinears(encoder.backbone.model, "bfloat16")
    assert encoder.fingerprint != before
    assert pickle.loads(pickle.dumps(encoder.backbone)).products == "bfloat16"
    assert copy.deepcopy(encoder).backbone.products == "bfloat16"
