"""mteb's classes on local rows: what results claim, seeds, and that nothing is fetched or left behind."""

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

mteb = pytest.importorskip("mteb", reason="the extra evaluate is not installed")

from tests.adapters.tables import Table, write  # noqa: E402
from tests.adapters.test_mteb_categories import blobs  # noqa: E402

from afterword import Encoder  # noqa: E402
from afterword.adapters.mteb import as_mteb  # noqa: E402
from afterword.adapters.mteb_categories import Classification, Clustering, Similarity  # noqa: E402


def test_results_do_not_claim_the_official_data(tmp_path: Path):
    rows = [{"sentence1": "a", "sentence2": "b", "score": s} for s in (0, 1)]
    data = write(tmp_path, pairs=rows, others=[*rows, rows[0]])
    official = mteb.get_task("ATEC")
    made = Similarity("ATEC", "pairs", "ATEC").mteb_task(data)
    assert type(made) is type(official) and made.metadata.name == "ATEC" and made.eval_splits == ["test"]
    assert made.metadata.dataset == {"path": "pairs", "revision": f"local-{data.digest('pairs')[:12]}"}
    assert made.metadata.revision != Similarity("ATEC", "others", "ATEC").mteb_task(data).metadata.revision
    assert mteb.get_task("ATEC").metadata == official.metadata
    own = Similarity("Mine", "pairs").mteb_task(data)
    assert (
        own.metadata.name == "Mine" and isinstance(own, mteb.AbsTask) and own.metadata.main_score == "cosine_spearman"
    )


def test_seed_0_is_mtebs_own_and_no_seed_of_ours_moves(tmp_path: Path):
    places = blobs()
    data = write(tmp_path, toy=[{"text": t, "label": str(int(t) % 5)} for t in places])
    task = Clustering("Toy", "toy", "CLSClusteringS2S")

    class Fixed(Encoder):
        def encode(self, texts, **options):
            return Table(places).encode(texts)

    encoder = Encoder.load("afterword-mini", "classical")
    fixed = Fixed(encoder.backbone, encoder.method)
    theirs = mteb.evaluate(as_mteb(fixed), [task.mteb_task(data)], cache=None, show_progress_bar=False)
    before = states()
    assert task.run(fixed, data).main == theirs.task_results[0].get_score()
    assert states() == before


def states() -> tuple:
    """Of the generators that belong to the user."""
    numbers = np.random.get_state()[1]  # noqa: NPY002
    return random.getstate(), numbers.tolist(), torch.get_rng_state().tolist()


def test_official_settings_hold(tmp_path: Path):
    rows = [{"text": f"{i}", "label": i % 2} for i in range(8)]
    data = write(tmp_path, toy__train=rows, toy__test=rows)
    made = Classification("Toy", "toy", "IFlyTek", "validation").mteb_task(data, seed=3)
    assert (made.samples_per_label, made.n_experiments, made.seed) == (32, 5, 45)
    own = Classification("Toy", "toy").mteb_task(data)
    assert (own.samples_per_label, own.n_experiments, own.seed) == (32, 10, 42)


ALONE = """
import socket, sys
from pathlib import Path

def refuse(*args, **options):
    raise AssertionError(f"the network was asked for: {args[1:]}")

socket.socket.connect = socket.getaddrinfo = refuse
from afterword import Encoder
from afterword.adapters.mteb import as_mteb
from afterword.adapters import mteb_categories as of
from afterword.tasks.rows import Folder

data, encoder = Folder(Path(sys.argv[1])), Encoder.load("afterword-mini", "classical")
tasks = [
    of.Similarity("A", "pairs", "STSB"), of.PairClassification("B", "pairs", "Ocnli", "validation"),
    of.Classification("C", "rows"), of.Clustering("D", "rows.test"), of.Reranking("E", "ranks"),
    of.Retrieval("F", "lib", "SciFact"),
]
print(*(0 <= task.run(encoder, data).main <= 1 for task in tasks))
import mteb
result = mteb.evaluate(as_mteb(encoder), [task.mteb_task(data) for task in tasks], cache=None, show_progress_bar=False)
print(*(r.task_name for r in result.task_results))
"""


@pytest.mark.slow
def test_no_category_asks_the_network_or_leaves_a_file(tmp_path: Path):
    words = ["cat", "dog", "rain", "sun", "tree", "leaf"]
    data, home = tmp_path / "data", tmp_path / "home"
    (data / "lib").mkdir(parents=True)
    home.mkdir()
    both = [{"sentence1": w, "sentence2": f"a {w}", "score": i, "label": i % 2} for i, w in enumerate(words)]
    rows = [{"text": w, "label": i % 2} for i, w in enumerate(words)]
    write(data, pairs=both, rows__train=rows, rows__test=rows)
    write(data, ranks=[{"query": "cat", "positive": ["dog"], "negative": ["rain"]}])
    write(data / "lib", corpus=[{"_id": w, "text": w} for w in words], queries=[{"_id": "q", "text": "cats"}])
    write(data / "lib", qrels=[{"query": "q", "corpus": "cat", "score": 1}])
    cut = ("HF_", "MTEB_", "XDG_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(cut)} | {"HOME": str(home), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, data], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "True True True True True True\nSTSB Ocnli C D E SciFact\n", done.stderr
    assert not [path for path in home.rglob("*") if path.is_file()]
