"""Tasks by name, with or without their split, by group, with options, from a file."""

from collections import Counter
from pathlib import Path

import pytest

from afterword.errors import InputError, MethodError
from afterword.tasks.catalogue import TASKS, groups, jobs, spellings
from afterword.tasks.pairs import Pairs
from afterword.tasks.published import published
from afterword.tasks.task import Folder, Task

STS = ["STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR"]
TRANSFER = ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"]


def mteb_task(name: str) -> Task:
    return Pairs(f"{name}.mteb", "none")


def names(*specs: str) -> list[str]:
    return [job.name for job in jobs(specs, ".", mteb_task)]


def test_groups_names_and_lists():
    assert names("sts") == STS and names("transfer") == TRANSFER
    assert names("STSB, TREC", "sts") == ["STSB", "TREC", *(n for n in STS if n != "STSB")]
    assert {"SLPWC", "WSD", "CoarseWSD20"} <= set(names("wordsense"))
    with pytest.raises(InputError, match="stss"):
        names("stss")


@pytest.mark.parametrize("spec", ["STSB", "stsb", "STS-B", "STSB.test", "sts-b.test", "stsb_test"])
def test_a_name_is_accepted_with_and_without_its_split(spec: str):
    assert names(spec) == ["STSB"]


def test_each_spelling_means_one_task():
    counts = Counter(spelling for task in TASKS for spelling in spellings(task))
    assert max(counts.values()) == 1
    assert names("STSB.dev", "CSTS.dev", "AFQMC.dev", "STSB.raw.test") == ["STSB.dev", "CSTS", "AFQMC", "STSB.raw"]
    with pytest.raises(InputError, match=r"STS12\.dev"):
        names("STS12.dev")


def test_every_name_that_a_table_prints_is_accepted():
    for group, members in groups().items():
        assert names(group) == members
        assert [name for member in members for name in names(member)] == members
    for table in published().values():
        for column in table.columns:
            if len(column.members) == 1 and not table.id.startswith("reba"):
                assert names(column.heading) == [column.members[0][0]]


def test_options():
    (job,) = jobs(["MR:folds=5"], ".", mteb_task)
    assert job.name == "MR:folds=5" and job.task.folds == 5 and job.task.name == "MR"
    assert names("STSB,SLPWC:occurrence=-1,decision=cosine,MR:folds=5,TREC") == [
        "STSB",
        "SLPWC:occurrence=-1,decision=cosine",
        "MR:folds=5",
        "TREC",
    ]
    assert names("transfer:folds=5") == [f"{n}:folds=5" for n in TRANSFER]
    for spec in ("MR:fold=5", "MR:folds=many"):
        with pytest.raises(MethodError, match="fold"):
            names(spec)


def test_tasks_of_mteb():
    assert names("mteb:TNews") == ["TNews.mteb"] and len(names("cmteb")) == 31 and len(names("cmteb-sts")) == 7
    assert names("ATEC.mteb", "ATEC") == ["ATEC.mteb", "ATEC"]


def test_a_file_of_pairs(tmp_path: Path):
    for name in ("a/pairs.jsonl", "b/pairs.jsonl", "dev.en.jsonl.gz", "stsb.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (job,) = jobs([str(tmp_path / "dev.en.jsonl.gz")], None, mteb_task)
    assert job.task == Pairs("dev.en", "dev.en.jsonl.gz") and job.source == Folder(tmp_path)
    assert names(f"{tmp_path}/a/pairs.jsonl", f"{tmp_path}/b/../a/pairs.jsonl") == ["pairs"]
    assert names(f"{tmp_path}/stsb.csv") == ["stsb.csv"], "not to be confused with STSB"
    with pytest.raises(InputError, match="'pairs'"):
        names(f"{tmp_path}/a/pairs.jsonl,{tmp_path}/b/pairs.jsonl")
    with pytest.raises(InputError, match=r"other\.csv"):
        names("other.csv")


def test_a_task_needs_data():
    with pytest.raises(InputError, match="data="):
        jobs(["STSB"], None, mteb_task)
