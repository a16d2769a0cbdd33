"""What embeds shards is chosen by its numbers."""

import pytest
import torch

from afterword.errors import InputError
from afterword.jobs import runs
from afterword.jobs.job import here
from afterword.jobs.pool import Outcome
from afterword.jobs.runs import run_by
from afterword.jobs.workers_cores import cores, share


@pytest.mark.parametrize(("name", "number"), [("workers", 0), ("workers", -1), ("threads", 0), ("retries", -1)])
def test_less_than_one_is_refused(name: str, number: int) -> None:
    with pytest.raises(InputError, match=f"{name}={number}: give {int(name != 'retries')} or more"):
        run_by(**{name: number})


def test_without_workers_this_process_embeds_with_so_many_threads() -> None:
    before = torch.get_num_threads()
    try:
        assert run_by(threads=before + 1) is here and torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_processes_and_actors_get_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def noted(worker, numbers, **options):
        asked.append(options)
        return Outcome(0, {3: "died"})

    monkeypatch.setattr(runs, "run_local", noted)
    monkeypatch.setattr(runs, "run_on_ray", noted)
    for run in (
        run_by("auto"), run_by(3, threads=2, retries=1), run_by(ray="local"), run_by(2, "auto", 4, gpus=1),
    ):  # fmt: skip
        assert run(None, [3], None) == {3: "died"}
    assert [a["workers"] for a in asked] == [share(cores()), 3, None, 2]
    assert [a["threads"] for a in asked] == [None, 2, 1, 4] and [a["retries"] for a in asked] == [3, 1, 3, 3]
    assert [a["address"] for a in asked[2:]] == [None, "auto"] and [a["gpus"] for a in asked[2:]] == [0, 1]
