"""Write the folders that lie beside this script, with the vectors they gave. It was run once, at commit b363d3b.

    git worktree add /tmp/old b363d3b
    PYTHONPATH=/tmp/old/src OMP_NUM_THREADS=1 python tests/files/saved/make.py

`tests/files/test_old_folders.py` opens them with the code of today. Run again with newer code, it would show nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

from afterword import Encoder, bellm, classical, ditto, echo, parse_method, prompt, reba
from afterword.files import fingerprint
from afterword.files.fingerprint import LIBRARIES, weights_digest
from afterword.post import Centre, Flow, Normalise, RemoveTop, Truncate, Whiten

HERE = Path(__file__).parent
TEXTS = [
    "The king lives in a castle by the river.", "A queen has a palace of her own.", "The bank raised its rates again.",
    "We sat on the bank of the river.", "Money lies in the bank.", "The cat sleeps on the warm stone.",
    "Water boils at a hundred degrees.", "Dogs and cats live in the garden.", "She plays the guitar in the evening.",
    "He reads what the queen has written.", "The river freezes in the cold of winter.", "I eat pasta with garlic.",
]  # fmt: skip
WORDS = ["The", "A", "bank", "bank", "Money", "cat", "Water", "Dogs", "She", "He", "The", "I"]
PAIRS = [
    {"sentence1": a, "sentence2": b, "score": 5.0 * (len(set(a.split()) & set(b.split())) / len(set(a.split())))}
    for i, a in enumerate(TEXTS) for b in TEXTS[i + 1 : i + 6]
]  # fmt: skip
SHAPE = {
    "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 64,
}  # fmt: skip
METHODS = {
    "llama-reba": ("llama", reba(copies=2, pool="mean")),
    "llama-released": ("llama", reba(copies=2, pool="last", variant="released")),
    "llama-bellm": ("llama", bellm(layers=[1], couple="add")),
    "llama-echo": ("llama", echo(3, states="first_last", separator=" ", truncate="after")),
    "bert-ditto": ("bert", ditto("2-1")),
    "bert-mean": ("bert", classical()),
    "bert-tfidf": ("bert", parse_method("tfidf:pool=mean")),
    "bert-mask": ("bert", prompt("promptbert", states="layer:1+2")),
}
STEPS = {
    "llama-echo": (Whiten(5), Normalise()),
    "llama-bellm": (Centre(), Truncate(5)),
    "bert-ditto": (RemoveTop(1),),
    "bert-tfidf": (Flow(epochs=3, steps=2, hidden=4, rate=0.05),),
}
PROMPTS = {"query": "query: ", "passage": "passage: "}


def tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """WordPiece or byte-level pairs, of some 150 pieces, learnt from the texts."""
    if kind == "bert":
        backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=specials, show_progress=False)
    else:
        backend = Tokenizer(models.BPE(unk_token="<unk>"))
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        specials = ["<pad>", "<unk>", "<s>", "</s>"]
        trainer = trainers.BpeTrainer(vocab_size=140, special_tokens=specials, show_progress=False)
    backend.train_from_iterator([*TEXTS, *PROMPTS.values(), 'abcdefghijklmnopqrstuvwxyz :,.This"RT'], trainer)
    around = ("[CLS]", "[SEP]") if kind == "bert" else ("<s>", "")
    tokens = [(t, backend.token_to_id(t)) for t in around if t]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{around[0]} $A {around[1]}".strip(), special_tokens=tokens
    )
    if kind == "bert":
        return PreTrainedTokenizerFast(
            tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
            mask_token="[MASK]",
        )  # fmt: skip
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def model(kind: str, folder: Path) -> Path:
    """A tiny model with random weights, large enough that attention is far from uniform."""
    torch.manual_seed(13)
    hf = tokenizer(kind)
    shape = {**SHAPE, "num_key_value_heads": 1, "head_dim": 4} if kind == "llama" else SHAPE
    net = AutoModel.from_config(AutoConfig.for_model(kind, vocab_size=len(hf), pad_token_id=0, **shape)).eval()
    with torch.no_grad():
        for p in net.parameters():
            p.normal_(std=p.shape[-1] ** -0.5) if p.ndim > 1 else None
    net.save_pretrained(folder)
    hf.save_pretrained(folder)
    return folder


def main() -> None:
    """Write it all anew."""
    for old in HERE.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    vectors: dict[str, np.ndarray] = {}
    prints: dict[str, dict[str, str]] = {}
    bare = HERE / "bare"
    for kind in ("llama", "bert"):
        model(kind, bare / kind)
    for name, (kind, method) in METHODS.items():
        loaded = Encoder.load(bare / kind, method)
        prompts = PROMPTS if name in ("llama-reba", "bert-mean") else None
        encoder = replace(
            loaded, post=STEPS.get(name, ()), max_length=60, prompts=prompts,
            default_prompt_name="query" if name == "llama-reba" else None, similarity_fn_name="cosine",
        ).fit(TEXTS * 3)  # fmt: skip
        encoder.save(HERE / name)
        again = Encoder.load(HERE / name)
        vectors[f"{name}/sentences"] = again.encode(TEXTS, on_long="ignore")
        if prompts:
            vectors[f"{name}/passages"] = again.encode_document(TEXTS, on_long="ignore")
        if method.layout.template is None or name == "bert-tfidf":
            vectors[f"{name}/words"] = again.encode_words(TEXTS, WORDS, on_long="ignore")
        prints[name] = {"fingerprint": fingerprint.fingerprint(again), "weights": _weights(again)}
    pairs = HERE / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in PAIRS), encoding="utf-8")
    run = [sys.executable, "-m", "afterword"]
    tune = ["tune", "-m", "bare/bert", "--dev", pairs.name, "--out", "tuned", "--heads", "none", "--post", "whiten"]
    subprocess.run([*run, *tune, "--no-progress"], check=True, cwd=HERE)
    tuned = Encoder.load(HERE / "tuned")
    vectors["tuned/sentences"] = tuned.encode(TEXTS, on_long="ignore")
    prints["tuned"] = {"fingerprint": tuned.fingerprint, "weights": _weights(tuned)}
    evaluate = ["evaluate", "-m", "llama-released", "--tasks", pairs.name, "--data", ".", "--out", "results"]
    subprocess.run([*run, *evaluate, "--no-progress"], check=True, cwd=HERE)
    shutil.rmtree(bare)
    save_file(vectors, HERE / "vectors.safetensors")
    about = {
        "commit": "b363d3b", "texts": TEXTS, "words": WORDS, "encoders": prints,
        "versions": {name: fingerprint.version(name) for name in LIBRARIES},
    }  # fmt: skip
    (HERE / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _weights(encoder: Encoder) -> str:
    return weights_digest(encoder.backbone.model).hex()


if __name__ == "__main__":
    main()
