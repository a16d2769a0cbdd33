"""The catalogue of local tasks: each fits what mteb knows of it, and its data is read."""

from pathlib import Path

import pytest
from tests.tasks.fewer import fewer

from afterword import Encoder
from afterword.adapters.mteb import as_mteb
from afterword.adapters.mteb_tasks import TASKS
from afterword.tasks.rows import Folder
from afterword.tasks.sts import sts

mteb = pytest.importorskip("mteb")


def test_official_tasks_are_mtebs_own_of_version_1():
    benchmark = {task.metadata.name for task in mteb.get_benchmark("MTEB(cmn, v1)").tasks}
    for task in (task for task in TASKS if task.official):
        known = mteb.get_task(task.official)
        assert (known.metadata.main_score, known.metadata.type) == (task.metric, task.kind), task
        assert isinstance(known, getattr(mteb.abstasks, task.base)) and task.split in known.eval_splits
        assert list(task.languages) == known.metadata.eval_langs
        assert task.official in benchmark or task.group.startswith("mteb-")


def test_stand_ins_have_names_that_mteb_does_not_know():
    for task in (task for task in TASKS if not task.official):
        with pytest.raises(KeyError):
            mteb.get_task(task.name)


def test_names_and_groups():
    assert len({task.name for task in TASKS}) == len(TASKS) == 36
    counts = {group: sum(task.group == group for task in TASKS) for group in dict.fromkeys(t.group for t in TASKS)}
    assert counts == {
        "zh-sts": 7, "zh-pair": 2, "zh-classification": 6, "zh-clustering": 3, "zh-reranking": 1, "zh-retrieval": 3,
        "mteb-sts": 7, "mteb-clustering": 6, "mteb-retrieval": 1,
    }  # fmt: skip


def test_all_data_is_read_and_fits(data: Path):
    sizes = {task.name: task.load(Folder(data)).size for task in TASKS}
    assert sizes["Ocnli"] == 1847 and sizes["PAWSX"] == 2000 and sizes["mteb-SICK-R"] == 4927
    assert sizes["SciFact"] == mteb.get_task("SciFact").metadata.n_samples["test"] == 5183 + 300
    assert sizes["CmrcRetrieval"] == 848 + 1000


@pytest.mark.slow
def test_a_score_through_mteb_is_that_of_the_table(minilm: Path, data: Path, tmp_path: Path):
    """On every tenth pair of STS16; of all pairs `make soak`."""
    few, encoder = fewer(data, tmp_path, sts("STS16").files()[0], 10), Encoder.load(minilm, "classical")
    (task,) = [task.mteb_task(few) for task in TASKS if task.name == "mteb-STS16"]
    (result,) = mteb.evaluate(as_mteb(encoder), [task], cache=None, show_progress_bar=False).task_results
    assert result.get_score() == pytest.approx(sts("STS16").run(encoder, few).main, abs=1e-4)
    assert result.dataset_revision.startswith("local-")


@pytest.mark.soak
def test_minilm_has_its_known_scores_through_mteb(minilm: Path, data: Path):
    """MiniLM's mean on STS12-16, STS-B and SICK-R, as the protocol of SentEval gives them."""
    encoder = Encoder.load(minilm, "classical")
    tasks = [task.mteb_task(Folder(data)) for task in TASKS if task.group == "mteb-sts"]
    results = mteb.evaluate(as_mteb(encoder), tasks, cache=None, show_progress_bar=False).task_results
    expected = [72.37, 80.60, 75.59, 85.39, 78.99, 82.03, 77.15]
    assert [100 * r.get_score() for r in results] == pytest.approx(expected, abs=0.02)
    assert all(r.dataset_revision.startswith("local-") for r in results)
