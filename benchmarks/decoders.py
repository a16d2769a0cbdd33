"""Sentences on real decoders, against a plain transformers loop: the mean, and Echo and ReBA next to it.

    python benchmarks/decoders.py

The loop is what one writes with transformers alone: texts sorted by length, padded batches of 32, one forward pass with
sdpa attention, and a mean over the tokens that are not padding. It reads the weights that the encoder has dequantised.
Gemma 3 is measured too where `-m gemma3` finds it.
"""

import tempfile

import numpy as np
import torch
from measure import Row, in_turns, main, medians, ratio
from models import stsb_sentences
from transformers import AutoModel, AutoTokenizer

from afterword import Encoder, classical, echo, reba
from afterword.errors import AfterwordError

BATCH = 32


class PaddedLoop:
    """Means of the last hidden states by transformers alone."""

    def __init__(self, folder: str) -> None:
        self.model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="right")
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token

    @torch.no_grad()
    def encode(self, texts: list[str]) -> np.ndarray:
        lengths = [len(ids) for ids in self.tokenizer(texts).input_ids]
        order = np.argsort(lengths)[::-1]
        vectors = np.empty((len(texts), self.model.config.hidden_size), np.float32)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = self.tokenizer([texts[i] for i in rows], padding=True, return_tensors="pt")
            states = self.model(**batch, use_cache=False).last_hidden_state
            mask = batch.attention_mask[..., None]
            vectors[rows] = ((states * mask).sum(1) / mask.sum(1)).numpy()
        return vectors


def measure_model(name: str, quick: bool) -> list[Row]:
    texts = stsb_sentences()[:: 300 if quick else 9]
    encoder = Encoder.load(name, classical(), device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        encoder.save(folder, overwrite=True)
        loop = PaddedLoop(folder)
    others = {"echo": echo(), "reba": reba(pool="mean")}
    calls = {"loop": lambda: loop.encode(texts), "classical": lambda: encoder.encode(texts)}
    calls |= {
        key: lambda method=method: Encoder(encoder.backbone, method).encode(texts) for key, method in others.items()
    }
    ours, theirs = encoder.encode(texts), loop.encode(texts)
    seconds = in_turns(calls, 1 if quick else 5)
    tokens = sum(len(ids) for ids in loop.tokenizer(texts).input_ids)
    rates = {f"{key}, tokens per second": tokens / s for key, s in medians(seconds).items()}
    head, gain = f"{name}, {len(texts)} sentences", ratio(seconds["classical"], seconds["loop"])
    return [
        Row(f"{head}: encode / padded loop, CPU time", gain, "<= 1", parts=rates),
        Row(
            f"{name}: the largest difference, of the largest value",
            float(abs(ours - theirs).max() / abs(theirs).max()),
            "<= 2e-5",
            "",
        ),
        *(
            Row(f"{head}: {key} / the mean, CPU time", ratio(seconds[key], seconds["classical"]))
            for key in ("echo", "reba")
        ),
        Row(f"{head}: encode, tokens per second", rates["classical, tokens per second"], unit="tokens/s"),
    ]


def measure(quick: bool) -> list[Row]:
    rows = measure_model("smollm2", quick)
    try:
        return [*rows, *measure_model("gemma3", quick)]
    except AfterwordError:
        return rows


if __name__ == "__main__":
    main("decoders", measure)
