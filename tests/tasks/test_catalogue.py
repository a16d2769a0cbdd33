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
    with pytest.raises(InputError, match=r"MR has no option 'fold' .did you mean 'folds'.*: it has file, folds"):
        names("MR:fold=5")
    with pytest.raises(InputError, match="STSB has no option 'name'"):
        names("STSB:name=x")
    with pytest.raises(MethodError, match="folds='many' does not fit: give a whole number"):
        names("MR:folds=many")


def test_a_file_of_ones_own(tmp_path: Path):
    (tmp_path / "mine.jsonl.gz").touch()
    (job,) = jobs([str(tmp_path / "mine.jsonl.gz")], SOURCE, local_tasks())
    assert job.task == Pairs("mine", "mine.jsonl.gz") and job.source == Folder(tmp_path)
    with pytest.raises(InputError, match=r"other\.csv does not exist: give a file of rows with sentence1"):
        names("other.csv")


def test_a_file_that_lies_in_the_folder_of_data_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.csv").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"mine\.csv does not exist in the working folder, .*: give data/mine\.csv$"):
        names("mine.csv")
    with pytest.raises(InputError, match=r"other\.csv does not exist: give a file of rows"):
        names("other.csv")
    assert names("data/mine.csv") == ["mine"]


def test_files_of_one_name_are_refused(tmp_path: Path):
    """N2: neither vanishes."""
    for name in ("a/pairs.jsonl", "b/pairs.jsonl", "dev.en.jsonl", "dev.zh.csv", "dev.en.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"a/pairs.jsonl and .*b/pairs.jsonl would both be 'pairs' in results: rename"):
        names(f"{tmp_path}/a/pairs.jsonl,{tmp_path}/b/pairs.jsonl")
    assert names(f"{tmp_path}/dev.en.jsonl,{tmp_path}/dev.zh.csv") == ["dev.en", "dev.zh"]
    with pytest.raises(InputError, match=r"would both be 'dev.en'"):
        names(f"{tmp_path}/dev.en.jsonl,{tmp_path}/dev.en.csv")
    assert names(f"{tmp_path}/dev.en.jsonl", f"{tmp_path}/a/../dev.en.jsonl") == ["dev.en"]


def test_an_own_file_is_no_official_task(tmp_path: Path):
    """N3: named like one, it is told apart by its ending."""
    for name in ("STS12.jsonl", "atec.csv.gz", "sts.jsonl"):
        (tmp_path / name).touch()
    asked = [f"STS12,{tmp_path}/STS12.jsonl", f"{tmp_path}/atec.csv.gz,{tmp_path}/sts.jsonl"]
    assert names(*asked) == ["STS12", "STS12.jsonl", "atec.csv.gz", "sts"]


def test_what_is_not_known_lists_what_is():
    with pytest.raises(
        InputError,
        match=r"no task or group 'stsx' .did you mean 'sts'.*: the groups are sts,.*cmteb-sts.*file of scored",
    ):
        names("stsx")
    with pytest.raises(InputError, match="no tasks are asked for"):
        names(",")


def test_others_are_asked_for_only_where_they_are_needed():
    def more(name: str) -> list[Pairs]:
        asked.append(name)
        return [Pairs("ATEC.mteb", "zh/sts/atec.test")]

    asked: list[str] = []
    jobs(["STSB"], SOURCE, local_tasks(), more)
    assert not asked
    assert [j.name for j in jobs(["STSB,atec.mteb"], SOURCE, local_tasks(), more)] == ["STSB", "ATEC.mteb"]
    with pytest.raises(InputError, match=r"no task or group 'x': the groups are .*cmteb-sts"):
        jobs(["x"], SOURCE, local_tasks(), more)
    assert [j.name for j in jobs(["mteb:ATEC"], SOURCE, local_tasks(), more)] == ["ATEC.mteb"]
    assert asked == ["atec.mteb", "mteb:ATEC"]
    with pytest.raises(InputError, match="'mteb:' names no task of mteb: give one, as in mteb:TNews"):
        jobs(["mteb:"], SOURCE, local_tasks(), more)


def test_the_names_of_mtebs_tasks():
    from afterword.adapters.mteb_official import TASKS

    assert {group: names.split() for group, names in MTEB.items()} == {
        group: [task.name for task in members] for group, members in groups(TASKS).items()
    }
    assert len(jobs(["cmteb"], SOURCE, local_tasks(), lambda _: TASKS)) == 31


def test_a_file_with_a_comma_in_its_name_is_one_file(tmp_path: Path):
    file = tmp_path / "a,b.jsonl"
    file.write_text("{}")
    found = jobs([str(file), "STS12,STS13"], Folder(tmp_path), local_tasks())
    assert [job.name for job in found] == ["a,b", "STS12", "STS13"]
    for wrong in (f"STS12,{tmp_path}/c.jsonl", f"STS12,{file}"):
        with pytest.raises(InputError, match=r"; one with a comma in its name goes into a --tasks of its own$"):
            jobs([wrong], Folder(tmp_path), local_tasks())
