"""Measure afterword-mini: held-out text, sentence similarity, continuations, a reload.

    python recipes/measure_mini.py --model runs/mini/model --data runs/mini/data --json runs/mini/figures.json

The figures beside it come from three tiny LLaMAs that know only TinyStories (where they lie beside the
corpus), from the same shape with random weights, and from the model's own input embeddings. Plain torch
and transformers, one text at a time: nothing of afterword itself has a part in these figures.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mini.corpus import LANGUAGE, RecipeError
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, logging

Array = NDArray[np.float32]
TINY_LLAMAS = ("llama2c-stories260K", "babyllama-tok105", "babyllama-tok361")
SIMILARITY = {
    "STS-B dev": "en/sts_raw/stsb.dev",
    "SICK test": "en/sts_raw/sickr.test",
    "STS-B zh dev": "zh/sts/stsb.dev",
}
BEGINNINGS = (
    "The city was founded in",
    "In 1914, the war",
    "She opened the door and",
    "中国的首都",
    "这部电影于2010年",
)
PROBES = ("A man is playing a guitar.", "一个男人在弹吉他。", "Water boils at 100 degrees.", "🙂")


class Decoder:
    """A causal model in float32 with its tokenizer."""

    def __init__(self, folder: Path, seed: int | None = None) -> None:
        """Load a folder; with a seed, only its shape is taken and the weights are random."""
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        if seed is None:
            self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        else:
            torch.manual_seed(seed)
            config = AutoConfig.from_pretrained(folder, dtype=torch.float32)
            self.model = AutoModelForCausalLM.from_config(config)
        self.model.eval()
        self.context = int(self.model.config.max_position_embeddings)

    @torch.inference_mode()
    def states(self, text: str) -> Tensor:
        """The last layer's states of one text, (tokens, width), BOS first."""
        ids = self.tokenizer(text, return_tensors="pt", truncation=True, max_length=self.context).input_ids
        states: Tensor = self.model.model(input_ids=ids, use_cache=False).last_hidden_state
        return states[0]

    @torch.inference_mode()
    def inputs(self, text: str) -> Tensor:
        """The input embeddings of one text, (tokens, width)."""
        ids = self.tokenizer(text, return_tensors="pt", truncation=True, max_length=self.context).input_ids
        inputs: Tensor = self.model.get_input_embeddings()(ids[0])
        return inputs

    @torch.inference_mode()
    def nats(self, text: str) -> tuple[float, int]:
        """Negative log-likelihood of a text in nats, and its tokens, in windows of the context.

        Each window begins with BOS and knows nothing of the one before: the same rule for every model.
        """
        ids = self.tokenizer(text, add_special_tokens=False).input_ids
        total, step = 0.0, self.context - 1
        for start in range(0, len(ids), step):
            row = torch.tensor([[self.tokenizer.bos_token_id, *ids[start : start + step]]])
            total += self.model(input_ids=row, labels=row).loss.item() * (row.shape[1] - 1)
        return total, len(ids)


# ---- held-out text -----------------------------------------------------------------------------


def held_out_texts(data: Path, source: str, characters: int) -> list[str]:
    """Give back the held-out texts of a source, up to so many characters of them."""
    tokenizer = AutoTokenizer.from_pretrained(data / "tokenizer")
    ids = np.fromfile(data / f"{source}.held_out.bin", np.uint16)
    texts: list[str] = []
    for piece in np.split(ids, np.flatnonzero(ids == tokenizer.eos_token_id) + 1):
        if len(piece) and sum(map(len, texts)) < characters:
            texts.append(tokenizer.decode(piece, skip_special_tokens=True))
    return texts


def unknown_share(decoder: Decoder, texts: list[str]) -> float:
    """The share of tokens that the tokenizer could not read."""
    ids = [i for text in texts for i in decoder.tokenizer(text, add_special_tokens=False).input_ids]
    return ids.count(decoder.tokenizer.unk_token_id) / max(1, len(ids))


def language_figures(decoder: Decoder, data: Path, characters: int) -> dict[str, dict[str, float]]:
    """Perplexity per token and bits per character of each source's held-out text."""
    figures = {}
    for source in LANGUAGE:
        texts = held_out_texts(data, source, characters)
        nats, tokens = map(sum, zip(*(decoder.nats(text) for text in texts), strict=True))
        figures[source] = {
            "perplexity": math.exp(nats / tokens),
            "bits_per_character": nats / math.log(2) / sum(map(len, texts)),
            "tokens_per_character": tokens / sum(map(len, texts)),
            "unknown": unknown_share(decoder, texts),
        }
    return figures


# ---- sentence similarity -----------------------------------------------------------------------


def read_pairs(path: Path) -> tuple[list[str], list[str], list[float]]:
    """Read a similarity set: the first and second sentences, and the scores that people gave."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows: list[dict[str, Any]] = [json.loads(line) for line in file]
    return [r["sentence1"] for r in rows], [r["sentence2"] for r in rows], [r["score"] for r in rows]


def spearman(first: Array, second: Array, scores: list[float]) -> float:
    """Spearman's rho between cosine similarity and the scores, in per cent."""
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return 100 * float(spearmanr((first * second).sum(1) / norms, scores).statistic)


def mean_vectors(decoder: Decoder, texts: list[str], kind: str) -> Array:
    """Mean over the tokens of each text, BOS included, (texts, width)."""
    read = decoder.states if kind == "states" else decoder.inputs
    return np.stack([read(text).mean(0).numpy() for text in texts])


def similarity_figures(decoder: Decoder, shared: Path, kind: str) -> dict[str, dict[str, float]]:
    """Raw and centred Spearman of each set that is there. Centring takes the set's own mean away."""
    figures = {}
    for name, file in SIMILARITY.items():
        path = shared / f"{file}.jsonl.gz"
        if not path.is_file():
            continue
        first, second, scores = read_pairs(path)
        a, b = mean_vectors(decoder, first, kind), mean_vectors(decoder, second, kind)
        centre = np.concatenate([a, b]).mean(0)
        figures[name] = {"raw": spearman(a, b, scores), "centred": spearman(a - centre, b - centre, scores)}
    return figures


# ---- continuations and reload ------------------------------------------------------------------


def continuations(decoder: Decoder, seed: int = 1) -> dict[str, str]:
    """Let the model go on from a few beginnings, 40 tokens each, sampled."""
    torch.manual_seed(seed)
    written = {}
    for text in BEGINNINGS:
        ids = decoder.tokenizer(text, return_tensors="pt").input_ids
        options = {"max_new_tokens": 40, "do_sample": True, "temperature": 0.7, "top_p": 0.9}
        out = decoder.model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        written[text] = decoder.tokenizer.decode(out[0], skip_special_tokens=True)
    return written


def fingerprint(folder: Path) -> str:
    """SHA-256 over the states of a few probes."""
    decoder = Decoder(folder)
    return hashlib.sha256(b"".join(decoder.states(text).numpy().tobytes() for text in PROBES)).hexdigest()


def reload_is_bitwise(folder: Path) -> bool:
    """Compute the fingerprint here and in a fresh process, and compare."""
    command = [sys.executable, __file__, "--model", str(folder), "--fingerprint"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout == fingerprint(folder) + "\n"


# ---- the command -------------------------------------------------------------------------------


def measure(model: Path, data: Path, shared: Path, characters: int) -> dict[str, Any]:
    """All figures of one model folder, with what they are compared to."""
    trained, random = Decoder(model), Decoder(model, seed=1)
    figures: dict[str, Any] = {
        "parameters": sum(p.numel() for p in trained.model.parameters()),
        "language": {"afterword-mini": language_figures(trained, data, characters)},
    }
    for name in TINY_LLAMAS:
        if (shared / "models" / name).is_dir():
            figures["language"][name] = language_figures(Decoder(shared / "models" / name), data, characters)
    figures["similarity"] = {
        f"{name}, {kind}": similarity_figures(decoder, shared, kind)
        for name, decoder in (("trained", trained), ("random", random))
        for kind in ("states", "inputs")
    }
    figures["continuations"] = continuations(trained)
    figures["reload_bitwise"] = reload_is_bitwise(model)
    return figures


def options() -> argparse.ArgumentParser:
    """The command line."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser = argparse.ArgumentParser(description="Measure afterword-mini")
    parser.add_argument("--model", type=Path, default=Path("runs/mini/model"), help="the exported folder")
    parser.add_argument("--data", type=Path, default=Path("runs/mini/data"), help="the packed data of its run")
    parser.add_argument("--shared", type=Path, default=beside, help="folder of en/, zh/ and models/")
    parser.add_argument("--characters", type=int, default=100_000, help="held-out characters per source")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--fingerprint", action="store_true", help="only print a hash of some vectors")
    return parser


def main() -> int:
    """Run the command; a mistake of the user is one line and exit code 2."""
    args = options().parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    try:
        if not (args.model / "config.json").is_file():
            raise RecipeError(f"no model in {args.model}; run recipes/pretrain_mini.py first")
        if args.fingerprint:
            print(fingerprint(args.model))
            return 0
        if not (args.data / "packed.json").is_file():
            raise RecipeError(f"no packed data in {args.data}; give that of the run with --data")
        text = json.dumps(measure(args.model, args.data, args.shared, args.characters), indent=1, ensure_ascii=False)
    except RecipeError as error:
        print(f"measure_mini: {error}", file=sys.stderr)
        return 2
    print(text)
    if args.json:
        args.json.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
