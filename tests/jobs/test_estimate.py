"""What a job will take: exact where it can be counted."""

import json
from pathlib import Path

from afterword.jobs.recipe import JobRecipe, Load, estimate, sampled
from afterword.jobs.rows import Inputs


def test_counts_and_sizes(llama: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": t}) + "\n" for t in ["a b", "", "c d e", None]))
    recipe = JobRecipe(Load(str(llama)))
    found = estimate(Inputs((file,)), recipe)
    opened = recipe.open()
    ids = opened.embedder.encoder.backbone.tokenizer.ids(["a b", "c d e"])
    width = opened.embedder.encoder.dimension * 4
    assert (found.rows, found.rejected, found.sample) == (4, 2, 2)
    assert found.tokens == sum(map(len, ids)) and found.size == 2 * width + 8 and found.seconds > 0


def test_the_sample_is_drawn_from_all_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": f"{i:03}"}) + "\n" for i in range(500)))
    drawn, rows, rejected, characters = sampled(Inputs((file,)), 50)
    numbers = [int(item.text or "") for item in drawn]
    assert (len(set(numbers)), rows, rejected, characters) == (50, 500, 0, 1500)
    assert 180 < sum(numbers) / 50 < 320
