"""What embeds shards is chosen by its numbers."""

from collections.abc import Callable

import pytest
import torch

from afterword.errors import InputError
from afterword.jobs import runs
from afterword.jobs.job import Silent
from afterword.jobs.pool import Outcome
from afterword.jobs.runs import run_by
from afterword.jobs.workers_cores import cores, share


@pytest.mark.parametrize(("name", "number"), [("workers", 0), ("workers", -1), ("threads", 0), ("retries", -1)])
def test_less_than_one_is_refused(name: str, number: int) -> None:
    with pytest.raises(InputError, match=f"{name}={number}: give {int(name != 'retries')} or more"):
        run_by(**{name: number})


@pytest.mark.parametrize(("name", "value"), [("threads", "1"), ("retries", 1.0), ("workers", True)])
def test_what_is_no_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{name}={value!r}: give"):
        run_by(**{name: value})


class _Threads:
    """A worker that notes torch's threads."""

    def start(self) -> Callable[[int], dict[str, int]]:
        return lambda number: {"threads": torch.get_num_threads(), "number": number}


class _Notes(Silent):
    def __init__(self) -> None:
        self.found = list[dict[str, int]]()

    def done(self, number: int, marker: dict[str, int]) -> None:
        self.found.append(marker)


def test_without_workers_this_process_embeds_with_so_many_threads_and_has_its_own_again() -> None:
    before, notes = torch.get_num_threads(), _Notes()
    run_by(threads=before + 1)(_Threads(), [4], notes)
    assert notes.found == [{"threads": before + 1, "number": 4}] and torch.get_num_threads() == before


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
