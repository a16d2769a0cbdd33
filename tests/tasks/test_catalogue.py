"""Tasks by name, by group, with options, from a file."""

from pathlib import Path

import pytest

from afterword.errors import InputError, MethodError
from afterword.tasks.catalogue import MTEB, groups, jobs, local_tasks
from afterword.tasks.pairs import Pairs
from afterword.tasks.rows import Folder

SOURCE = Folder(Path("data"))
STS = ["STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR"]
TRANSFER = ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"]


def names(*specs: str) -> list[str]:
    return [job.name for job in jobs(specs, SOURCE, local_tasks())]


def test_groups_names_and_lists():
    assert names("sts") == STS and names("transfer") == TRANSFER
    assert names("STSB, TREC", "sts") == ["STSB", "TREC", *(n for n in STS if n != "STSB")]
    assert names("stsb") == ["STSB"] and {"SLPWC", "WSD", "CoarseWSD20"} <= set(names("wordsense"))


def test_no_name_stands_for_two_tasks():
    tasks = local_tasks()
    assert len({t.name.lower() for t in tasks}) == len(tasks)
    for group, members in groups(tasks).items():
        assert [t for t in tasks if t.name.lower() == group.lower()] in ([], members)


def test_options():
    (job,) = jobs(["MR:folds=5"], SOURCE, local_tasks())
    assert job.name == "MR:folds=5" and job.task.folds == 5 and job.task.name == "MR"
    assert names("STSB,SLPWC:occurrence=-1,decision=cosine,MR:folds=5,TREC") == [
        "STSB",
        "SLPWC:occurrence=-1,decision=cosine",
        "MR:folds=5",
        "TREC",
    ]
    assert names("transfer:folds=5") == [f"{n}:folds=5" for n in TRANSFER]
    with pytest.raises(InputError, match=r"MR .*'fold'"):
        names("MR:fold=5")
    with pytest.raises(InputError, match="STSB has no option 'name'"):
        names("STSB:name=x")
    with pytest.raises(MethodError, match="folds='many'"):
        names("MR:folds=many")


def test_a_file_of_ones_own(tmp_path: Path):
    (tmp_path / "mine.jsonl.gz").touch()
    (job,) = jobs([str(tmp_path / "mine.jsonl.gz")], SOURCE, local_tasks())
    assert job.task == Pairs("mine", "mine.jsonl.gz") and job.source == Folder(tmp_path)
    with pytest.raises(InputError, match=r"other\.csv"):
        names("other.csv")


def test_files_of_one_name_are_refused(tmp_path: Path):
    """N2: neither vanishes."""
    for name in ("a/pairs.jsonl", "b/pairs.jsonl", "dev.en.jsonl", "dev.zh.csv", "dev.en.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"a/pairs.jsonl .*b/pairs.jsonl"):
        names(f"{tmp_path}/a/pairs.jsonl,{tmp_path}/b/pairs.jsonl")
    assert names(f"{tmp_path}/dev.en.jsonl,{tmp_path}/dev.zh.csv") == ["dev.en", "dev.zh"]
    with pytest.raises(InputError, match=r"would both be 'dev.en'"):
        names(f"{tmp_path}/dev.en.jsonl,{tmp_path}/dev.en.csv")
    assert names(f"{tmp_path}/dev.en.jsonl", f"{tmp_path}/a/../dev.en.jsonl") == ["dev.en"]


def test_the_names_of_mtebs_tasks():
    from afterword.adapters.mteb_official import TASKS

    assert {group: names.split() for group, names in MTEB.items()} == {
        group: [task.name for task in members] for group, members in groups(TASKS).items()
    }
    assert len(jobs(["cmteb"], SOURCE, local_tasks(), lambda _: TASKS)) == 31
