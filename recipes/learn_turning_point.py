"""Learn which layers should see both ways: a gate per layer, started causal, trained with the model.

    python recipes/learn_turning_point.py --data ../shared/data/nli/triplets_10k.jsonl.gz

BeLLM finds its turning point by an experiment of its own and leaves open whether it can be learned. Here each layer's
attention is (1 - g) causal + g both ways, and g is a number that is trained like any weight, with the same loss. All
gates start at 0, which is the causal model, and are kept in [0, 1]. The recipe prints where they end.

    --model afterword-mini    a causal model that runs with our attention backend (see `afterword inspect`)
    --dev pairs.jsonl.gz      scored pairs: Spearman before, after, and after with all gates at 0 again
    --still                   train the gates alone, with the model as it is
    --json gates.json         the figures, and the gates after every step
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from torch import Tensor, nn
from transformers import PrinterCallback, TrainerCallback, set_seed

from afterword import Encoder, bellm
from afterword.backbone.attention_masks import current
from afterword.backbone.backbone import Backbone
from afterword.backbone.bidirectional import Sight
from afterword.st import sentence_transformer
from afterword.train.lora import attach
from afterword.train.losses import make_loss
from afterword.train.rows import TrainingRows
from afterword.train.settings import Settings
from afterword.train.trainer import Trainer, evaluator


class Gates(nn.Module):
    """One number per layer: how far its attention sees both ways."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(len(backbone.modules)))
        self.busy = False
        backbone.facts = replace(backbone.facts, shares=False)  # a template's tokens see the text that follows
        for i, module in enumerate(backbone.modules):
            module.register_forward_hook(self.mixing(i), with_kwargs=True)

    def mixing(self, layer: int) -> Any:
        """A layer's attention is run a second time, with every token in sight, and mixed with the first."""

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
            plan = current()
            if self.busy or plan is None:
                return None
            self.busy = plan.force_bidirectional = True
            try:
                both: Tensor = module(*args, **kwargs)[0]
            finally:
                self.busy = plan.force_bidirectional = False
            return (output[0] + self.values[layer] * (both - output[0]), *output[1:])

        return hook

    @torch.no_grad()
    def keep_inside(self) -> None:
        """A gate beyond its ends would be neither causal nor both ways."""
        self.values.clamp_(0, 1)


class Watch(TrainerCallback):
    """Keep the gates inside after every step, and note where they are."""

    def __init__(self, gates: Gates) -> None:
        self.gates, self.path, self.losses = gates, [], []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.gates.keep_inside()
        self.path.append(self.gates.values.tolist())

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        self.losses += [logs["loss"]] if "loss" in logs else []


def spearman(model: SentenceTransformer, dev: TrainingRows | None) -> float | None:
    """Between the scores of dev and the vectors' cosines, times 100."""
    return None if dev is None else 100 * evaluator(dev)(model)["dev_spearman_cosine"]


def learn(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train the gates, and the model's LoRA matrices beside them; what came of it."""
    settings = Settings(rank=16, batch_size=arguments.batch_size, max_length=64, seed=arguments.seed)
    rows = TrainingRows.read(arguments.data)
    dev = TrainingRows.read(arguments.dev) if arguments.dev else None
    set_seed(settings.seed)
    method = replace(bellm(last=1, template=arguments.template or None), sight=Sight(), name="gated")
    encoder = Encoder.load(arguments.model, method)
    model = sentence_transformer(encoder)
    encoder.backbone.model.requires_grad_(False)
    first: Any = model[0]
    first.max_seq_length = settings.max_length
    if not arguments.still:
        first.auto_model = attach(encoder.backbone.model, settings)
    gates = first.gates = Gates(encoder.backbone)
    watch, before, start = Watch(gates), spearman(model, dev), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        options = SentenceTransformerTrainingArguments(
            output_dir=folder, per_device_train_batch_size=settings.batch_size, max_steps=arguments.steps,
            learning_rate=settings.learning_rate, learning_rate_mapping={r"gates\.values": arguments.gate_rate},
            warmup_steps=0.1, seed=settings.seed, batch_sampler="no_duplicates", dataloader_drop_last=True,
            dataloader_pin_memory=False, logging_steps=1, logging_nan_inf_filter=False, save_strategy="no",
            report_to=[], use_cpu=encoder.device.type == "cpu", disable_tqdm=not sys.stderr.isatty(),
        )  # fmt: skip
        trainer = Trainer(
            model=model, args=options, train_dataset=Dataset.from_dict(dict(rows.columns)),
            loss=make_loss(model, settings), callbacks=[watch],
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    model.eval()
    seconds, after, found = time.perf_counter() - start, spearman(model, dev), gates.values.tolist()
    with torch.no_grad():
        gates.values.zero_()
    return {
        "gates": found, "path": watch.path, "losses": watch.losses, "seconds": seconds,
        "dev": {"before": before, "after": after, "after, gates at 0": spearman(model, dev)},
    }  # fmt: skip


def printed(found: dict[str, Any]) -> str:
    """A bar per layer, the losses, the scores."""
    lines = ["layer  gate (0 causal, 1 both ways)"]
    lines += [f"{i:>5}  {g:.3f} {'#' * round(40 * g)}" for i, g in enumerate(found["gates"], 1)]
    tenth = max(len(found["losses"]) // 10, 1)
    start, end = (sum(part) / len(part) for part in (found["losses"][:tenth], found["losses"][-tenth:]))
    lines.append(f"loss {start:.3f} -> {end:.3f} in {len(found['losses'])} steps, {found['seconds']:.0f} seconds")
    lines += [f"Spearman on dev, {name}: {score:.2f}" for name, score in found["dev"].items() if score is not None]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="afterword-mini")
    parser.add_argument("--data", required=True)
    parser.add_argument("--dev")
    parser.add_argument("--template", default="bellm", help="a name, a string with {text}, or empty for the text alone")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--gate-rate", type=float, default=0.02, help="learning rate of the gates")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--still", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = learn(arguments)
    print(printed(found))
    if arguments.json:
        arguments.json.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
