"""Pretrain afterword-mini, the small bilingual (English, Chinese) decoder that afterword ships.

    python recipes/pretrain_mini.py --corpus ../shared/data/corpus --out runs/mini --compile
    python recipes/pretrain_mini.py --tiny --out runs/tiny       # a minute instead of two hours

The same command again goes on from the last checkpoint. The order of this file is the order of the
run: plan, model, step, checkpoint, validation, export.

    <out>/data/        tokenizer, packed token ids (uint16), the overlap with the evaluation sets
    <out>/last.pt      the last checkpoint: weights, optimizer, step, random state
    <out>/loss.jsonl   one line per logged step; <out>/loss.png is its plot
    <out>/model/       the exported model: float16 safetensors, tokenizer, config
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mini import corpus as corpora
from mini import packing
from mini.corpus import SHARES, RecipeError
from mini.curve import keep_log_until, log_row, plot
from torch import Tensor
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, logging

# ---- plan --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Everything that decides the final weights; a checkpoint remembers it."""

    vocab: int = 8192
    width: int = 256
    layers: int = 6
    heads: int = 8
    kv_heads: int = 4
    ffn: int = 640
    context: int = 512
    batch: int = 16  # blocks of `context` tokens per step
    micro: int = 8  # blocks per forward: the logits of a whole batch are large
    steps: int = 4000
    warmup: int = 100
    lr: float = 3e-3
    final_lr: float = 0.05  # of the peak
    weight_decay: float = 0.1
    clip: float = 1.0
    seed: int = 1
    tokenizer_bytes: int = 14_000_000  # of English; corpus.SAMPLE_RATIO says how much Chinese
    documents: int = 0  # of each corpus file; 0 reads all
    compile: bool = False

    @property
    def tokens(self) -> int:
        """Tokens seen in the whole run."""
        return self.steps * self.batch * self.context


TINY = Plan(
    vocab=1024, width=64, layers=2, heads=4, kv_heads=2, ffn=160, context=128, batch=8, micro=4,
    steps=60, warmup=10, tokenizer_bytes=200_000, documents=60,
)  # fmt: skip


def learning_rate(plan: Plan, step: int) -> float:
    """Warm up linearly, then follow half a cosine from `lr` down to `final_lr * lr`."""
    if step < plan.warmup:
        return plan.lr * (step + 1) / plan.warmup
    done = (step - plan.warmup) / max(1, plan.steps - plan.warmup)
    floor = plan.final_lr * plan.lr
    return floor + 0.5 * (plan.lr - floor) * (1 + math.cos(math.pi * done))


# ---- model and step ----------------------------------------------------------------------------


def build_model(plan: Plan) -> LlamaForCausalLM:
    """Make the decoder with random weights; bos is token 0, eos and padding are token 1."""
    config = LlamaConfig(
        vocab_size=plan.vocab,
        hidden_size=plan.width,
        intermediate_size=plan.ffn,
        num_hidden_layers=plan.layers,
        num_attention_heads=plan.heads,
        num_key_value_heads=plan.kv_heads,
        max_position_embeddings=plan.context,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        attn_implementation="sdpa",
    )
    torch.manual_seed(plan.seed)
    return LlamaForCausalLM(config)


def make_optimizer(model: LlamaForCausalLM, plan: Plan) -> torch.optim.AdamW:
    """AdamW that decays matrices only: shrinking a norm's gain or a bias regularises nothing."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": plan.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=plan.lr, betas=(0.9, 0.95), fused=True)


def loss_of(model: LlamaForCausalLM, ids: Tensor) -> Tensor:
    """Mean negative log-likelihood in nats of ids[:, 1:] given what precedes each, ids (B, n+1)."""
    # no attention mask: the blocks are full, and SDPA's causal path is the fast one
    states = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    logits = F.linear(states, model.lm_head.weight).float()  # (B, n, vocab)
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def autocast(device: torch.device) -> torch.autocast:
    """Multiply in bfloat16 where that is fast; the weights stay float32."""
    fast = device.type == "cuda" or (device.type == "cpu" and torch.cpu._is_avx512_bf16_supported())
    return torch.autocast(device.type, torch.bfloat16, enabled=fast)


Loss = Callable[[LlamaForCausalLM, Tensor], Tensor]


@dataclass
class Run:
    """What changes while training."""

    model: LlamaForCausalLM
    optimizer: torch.optim.AdamW
    step: int = 0
    seconds: float = 0.0


def train_step(run: Run, loss: Loss, ids: Tensor, plan: Plan) -> float:
    """Take one optimizer step on ids (batch, context + 1) and return the mean loss in nats.

    Raises:
        RecipeError: the loss or the gradient is not finite; the weights are untouched.
    """
    for group in run.optimizer.param_groups:
        group["lr"] = learning_rate(plan, run.step)
    total = 0.0
    for part in torch.split(ids, plan.micro):
        with autocast(ids.device):
            value = loss(run.model, part) * (len(part) / len(ids))
        torch.autograd.backward(value)
        total += value.item()
    norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), plan.clip)
    if not (math.isfinite(total) and math.isfinite(norm.item())):
        raise RecipeError(f"the loss is no number at step {run.step}: the last checkpoint is kept")
    run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)
    return total


# ---- checkpoint --------------------------------------------------------------------------------


def save_checkpoint(run: Run, plan: Plan, path: Path) -> None:
    """Write all that decides the rest of the run. A half-written file never replaces a good one."""
    state = {
        "plan": asdict(plan),
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "step": run.step,
        "seconds": run.seconds,
        "rng": torch.get_rng_state(),
    }
    packing.write_atomic(path, lambda file: torch.save(state, file))


def load_checkpoint(run: Run, plan: Plan, path: Path) -> None:
    """Put a run back to where its checkpoint was written.

    Raises:
        RecipeError: the checkpoint belongs to another plan.
    """
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    free = ("steps", "compile")  # a longer or shorter schedule may go on from what is there
    changed = [k for k, v in asdict(plan).items() if state["plan"].get(k) != v and k not in free]
    if changed:
        raise RecipeError(f"{path} was made with another {changed[0]}; use the same options or another --out")
    run.model.load_state_dict(state["model"])
    run.optimizer.load_state_dict(state["optimizer"])
    run.step, run.seconds = state["step"], state["seconds"]
    torch.set_rng_state(state["rng"])


# ---- validation --------------------------------------------------------------------------------


@torch.no_grad()
def validate(model: LlamaForCausalLM, folder: Path, plan: Plan, blocks: int) -> dict[str, float]:
    """Measure held-out text: nats per token, perplexity and bits per character of each source.

    Args:
        model: the model, on the device to measure on.
        folder: the packed data.
        plan: gives the length of a block.
        blocks: at most so many blocks of each source.
    """
    device = next(model.parameters()).device
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    figures: dict[str, float] = {}
    for name in SHARES:
        ids = np.fromfile(folder / f"{name}.held_out.bin", np.uint16).astype(np.int64)
        count = min(blocks, (len(ids) - 1) // plan.context)
        nats = characters = 0.0
        for start in range(0, count * plan.context, plan.context):
            row = ids[start : start + plan.context + 1]
            with autocast(device):
                nats += loss_of(model, torch.from_numpy(row)[None].to(device)).item()
            characters += len(tokenizer.decode(row[1:], skip_special_tokens=True))
        if count:
            figures[f"{name}_nats"] = nats / count
            figures[f"{name}_perplexity"] = math.exp(nats / count)
            bits = nats * plan.context / math.log(2)
            figures[f"{name}_bits_per_character"] = bits / characters
    return figures


# ---- the run -----------------------------------------------------------------------------------


def start_run(plan: Plan, out: Path, device: torch.device) -> Run:
    """Build the model, and put it back to the last checkpoint if there is one."""
    model = build_model(plan).to(device)
    run = Run(model, make_optimizer(model, plan))
    if (out / "last.pt").is_file():
        load_checkpoint(run, plan, out / "last.pt")
        print(f"going on from step {run.step}", file=sys.stderr)
    keep_log_until(out / "loss.jsonl", run.step)
    return run


def train(plan: Plan, out: Path, device: torch.device, stop: int, every: int) -> Run:
    """Train from the last checkpoint, or from the start, up to step `stop`.

    Args:
        plan: what to train.
        out: has data/; gets last.pt and loss.jsonl.
        device: where to train.
        stop: leave the loop after this step (the schedule stays that of the plan).
        every: steps between checkpoints; held-out text is measured at every fourth.
    """
    count = plan.steps * plan.batch
    blocks = packing.Blocks(out / "data", plan.context, count, plan.seed)
    run = start_run(plan, out, device)
    loss: Loss = torch.compile(loss_of) if plan.compile else loss_of
    began = time.monotonic() - run.seconds
    while run.step < min(stop, plan.steps):
        rows = blocks.rows(run.step * plan.batch, (run.step + 1) * plan.batch)
        ids = torch.from_numpy(rows).to(device)
        value = train_step(run, loss, ids, plan)
        run.step, run.seconds = run.step + 1, time.monotonic() - began
        last = run.step in (stop, plan.steps)
        if run.step % 10 == 0 or run.step == 1:
            tokens = run.step * plan.batch * plan.context
            row = {"step": run.step, "loss": value, "tokens": tokens, "s": round(run.seconds, 1)}
            log_row(out / "loss.jsonl", row)
        if run.step % (4 * every) == 0 or last:
            figures = validate(run.model, out / "data", plan, 40)
            log_row(out / "loss.jsonl", {"step": run.step, **figures})
        if run.step % every == 0 or last:
            save_checkpoint(run, plan, out / "last.pt")
    return run


def export(run: Run, plan: Plan, out: Path) -> None:
    """Write the model as float16 safetensors with its tokenizer, as AutoModel expects them."""
    folder, part = out / "model", out / "model.part"
    model = build_model(plan)
    model.load_state_dict(run.model.state_dict())
    try:
        model.to(torch.float16).save_pretrained(part)
        for file in (out / "data" / "tokenizer").iterdir():
            shutil.copy(file, part / file.name)
        shutil.rmtree(folder, ignore_errors=True)
        part.replace(folder)
    except Exception as error:
        raise packing.no_space(error, folder) from error


def prepare(plan: Plan, corpus: Path, out: Path, tiny: bool) -> None:
    """Make the tokenizer and the packed ids, unless an earlier run has finished them."""
    if (out / "data" / "packed.json").is_file():
        return
    if tiny and not (corpus / corpora.SOURCES["enwiki"][0]).is_file():
        print(f"no corpus in {corpus}: using the project's own text", file=sys.stderr)
        pieces = corpora.own_text()
    else:
        pieces = corpora.read_corpus(corpus, plan.documents or None)
    packing.prepare(pieces, out / "data", plan.vocab, plan.tokenizer_bytes, plan.seed)


def default_corpus() -> Path:
    """The corpus below AFTERWORD_SHARED, or below the folder `shared` beside the project."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    return Path(os.environ.get("AFTERWORD_SHARED", beside)) / "data" / "corpus"


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--corpus", type=Path, default=default_corpus(), help="folder of the texts")
    parser.add_argument("--out", type=Path, default=Path("runs/mini"), help="folder to write to")
    parser.add_argument("--tiny", action="store_true", help="a two-minute run that shows the way")
    parser.add_argument("--steps", type=int, help="optimizer steps of the whole schedule")
    parser.add_argument("--lr", type=float, help="peak learning rate")
    parser.add_argument("--batch", type=int, help="blocks of 512 tokens per step")
    parser.add_argument("--seed", type=int, help="of weights and data order")
    parser.add_argument("--compile", action="store_true", help="torch.compile the step")
    parser.add_argument("--stop", type=int, default=sys.maxsize, help="leave at this step")
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--threads", type=int, help="CPU threads")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    return parser


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan that the options ask for."""
    given = {k: v for k in ("steps", "lr", "batch", "seed") if (v := getattr(args, k)) is not None}
    return replace(TINY if args.tiny else Plan(), compile=args.compile, **given)


def run_all(args: argparse.Namespace) -> None:
    """Prepare, train, and when the schedule is through, export and plot."""
    plan = plan_of(args)
    logging.disable_progress_bar()
    if args.threads:
        torch.set_num_threads(args.threads)
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(kind if args.device == "auto" else args.device)
    prepare(plan, args.corpus, args.out, args.tiny)
    if args.tiny:  # shows resuming, too: the second call starts from the first one's checkpoint
        train(plan, args.out, device, min(args.stop, plan.steps // 2), args.every)
    run = train(plan, args.out, device, args.stop, args.every)
    if run.step == plan.steps:
        export(run, plan, args.out)
        plot(args.out / "loss.jsonl", args.out / "loss.png")
        print(f"{plan.tokens:,} tokens in {run.seconds:.0f} s: {args.out / 'model'}", file=sys.stderr)


def main() -> int:
    """Run the command; a mistake of the user is one line and exit code 2."""
    try:
        run_all(options().parse_args())
    except RecipeError as error:
        print(f"pretrain_mini: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
