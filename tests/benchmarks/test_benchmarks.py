"""Every benchmark runs in its quick form and writes what the table is made of; the figures are for `make bench`."""

import json
import math
import os
import subprocess
import sys

import pytest

from afterword.products import lacks_bfloat16

NAMES = (
    "reba_time",
    "reba_memory",
    "load_memory",
    "against_paper",
    "sentences_decoder",
    "minilm",
    "ceiling",
    "short_and_equal",
    "mini",
    "template",
    "ditto_time",
    "many",
    "evaluation",
    "training",
    "degradation",
    "tune",
)


def run(root, *command: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "AFTERWORD_KERNELS"}
    done = subprocess.run(
        [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs_and_writes_its_figures(name, root, tmp_path, request):
    if name in (
        "minilm",
        "short_and_equal",
        "ceiling",
        "mini",
        "template",
        "ditto_time",
        "evaluation",
        "training",
        "degradation",
        "tune",
    ):
        request.getfixturevalue("data")
    if name in ("reba_memory", "load_memory", "against_paper", "training", "tune") and sys.platform != "linux":
        pytest.skip("the highest resident memory is read from /proc")
    printed = run(root, f"benchmarks/{name}.py", "--quick", "--plain", "--out", str(tmp_path))
    found = json.loads((tmp_path / f"{name}.json").read_text())
    assert found["quick"] and found["threads"] == 1
    assert all(found[key] for key in ("cpu", "torch", "transformers", "date"))
    rows = found["passes"]["plain"]
    assert rows and all(math.isfinite(row["value"]) and row["value"] >= 0 for row in rows)
    assert all(row["what"] in printed for row in rows)
    made = run(root, "benchmarks/table.py", str(tmp_path))
    assert all(row["what"] in made for row in rows) and "QUICK" in made


@pytest.mark.skipif(lacks_bfloat16() is None, reason="this processor has what is needed")
def test_a_processor_that_lacks_bfloat16_is_told_so_in_one_line(root):
    printed = run(root, "benchmarks/bfloat16_products.py", "--quick")
    assert printed == f"products='bfloat16' cannot be measured here: {lacks_bfloat16()}\n"


def test_what_the_paper_way_gives_is_what_we_give(root):
    """The yardstick is right: `literal.py` and the library agree."""
    code = (
        "import sys; sys.path.insert(0, 'benchmarks')\n"
        "import torch\n"
        "from transformers import AutoModel, GPT2Config\n"
        "from literal import reba_last\n"
        "from models import gpt2_backbone, random_texts\n"
        "import models\n"
        "from afterword import Encoder, reba\n"
        "models.GPT2Config = lambda **o: GPT2Config(n_layer=2, n_embd=64, n_head=4, **o)\n"
        "encoder, model = Encoder(gpt2_backbone(), reba()), models.gpt2('eager')\n"
        "texts = random_texts([9, 1, 30])\n"
        "ours = torch.from_numpy(encoder.encode(texts))\n"
        "theirs = torch.stack([reba_last(model, t) for t in texts])\n"
        "print(float((ours - theirs).abs().max() / theirs.abs().max()))\n"
    )
    assert float(run(root, "-c", code)) < 2e-6
