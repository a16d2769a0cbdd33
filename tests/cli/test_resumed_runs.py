"""What is finished is never lost: a run that ended in any way goes on, and gives the file of an unbroken one."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
import torch
from tests.cli.conftest import Run
from tests.disk import disk_of
from tests.killed import forked
from tests.tiny import tiny

from afterword.cli import main
from afterword.jobs.embedder import MethodsEmbedder

KINDS = ["npy", "jsonl", "parquet"]
ROWS, WINDOW = 26, 4
TEXTS = [f"text {i} and {'so on ' * (i * 7 % 11)}".strip() for i in range(ROWS)]
TEXTS[5] = TEXTS[17] = ""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("gpt2", tmp_path_factory.mktemp("model") / "gpt2")


class Job:
    """A command line in a folder of its own."""

    def __init__(self, model: Path, folder: Path, kind: str, *more: object, texts: list[str] = TEXTS) -> None:
        self.folder, self.out, self.source = folder, folder / f"out.{kind}", folder / "in.txt"
        self.parts, self.rejects = folder / f"out.{kind}.parts", folder / f"out.{kind}.rejects.jsonl"
        self.give(texts)
        files = ["-i", self.source, "-o", self.out]
        self.words = ["embed", "-m", model, "--method", "classical", *files, "--window", WINDOW, *more]

    def give(self, texts: list[str]) -> None:
        self.source.write_text("".join(f"{text}\n" for text in texts))

    def forked(self, at: int | None = None) -> tuple[int, list[str]]:
        code, calls = forked(self.words, self.folder / "log", at)
        names = {f"{self.parts}/": "", str(self.parts): "PARTS", f"{self.folder}/": "", str(self.folder): "FOLDER"}
        for path, name in names.items():
            calls = [call.replace(path, name) for call in calls]
        return code, [re.sub(r"\.afterword-\w+", ".afterword", call) for call in calls]

    @property
    def finished(self) -> list[int]:
        return sorted(int(path.stem) for path in self.parts.glob("done/*.json"))

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if not path.name.startswith("log"))


class Whole(Job):
    """A run that was not interrupted, and the calls that it made."""

    def __init__(self, model: Path, folder: Path, kind: str) -> None:
        super().__init__(model, folder, kind)
        code, self.calls = self.forked()
        assert code == 1 and self.files == ["in.txt", self.out.name, self.rejects.name]

    def at(self, *patterns: str) -> int:
        """The number of the first call like the first pattern, then of the next one like the second, and so on."""
        place = -1
        for pattern in patterns:
            place = next(i for i in range(place + 1, len(self.calls)) if re.fullmatch(pattern, self.calls[i]))
        return place

    def check(self, job: Job) -> None:
        assert job.out.read_bytes() == self.out.read_bytes()
        assert job.rejects.read_bytes() == self.rejects.read_bytes()
        assert job.files == self.files


@pytest.fixture(scope="module")
def wholes(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Whole]:
    return {kind: Whole(model, tmp_path_factory.mktemp("whole"), kind) for kind in KINDS}


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts that this process embeds for rows."""
    texts: list[str] = []
    real = MethodsEmbedder.__call__

    def counted(self, given, *rest):
        texts.extend(given)
        return real(self, given, *rest)

    monkeypatch.setattr(MethodsEmbedder, "__call__", counted)
    return texts


def missing(finished: int) -> list[str]:
    """The texts of all windows but the first ones."""
    return [text for text in TEXTS[finished * WINDOW :] if text]


def check_kill(whole: Whole, job: Job, at: int, embedded: list[str]) -> None:
    """Kill a run before one of its calls: the same command gives the file, and embeds only what was not finished."""
    code, calls = job.forked(at)
    assert code == -signal.SIGKILL and calls == whole.calls[:at]
    finished = sum(bool(re.fullmatch(r"replace tmp/\d+\.json", call)) for call in calls)
    embedded.clear()
    code = main([str(word) for word in job.words])
    assert embedded == missing(finished)
    # The last calls remove an empty folder: the run is over then, and the same command finds an output that exists.
    assert code == (2 if "unlink complete.json" in calls[whole.at("link tmp/joined") :] else 1)
    whole.check(job)


POINTS = {
    "before the first part": ("npy", "replace tmp/job.json"),
    "a part that is not on disk": ("jsonl", "replace tmp/000001.json", "fsync tmp/000002.jsonl"),
    "a part without its marker": ("parquet", "replace tmp/000003.parquet", "replace tmp/000003.json"),
    "the join": ("npy", "fsync tmp/joined"),
    "the joined file without its name": ("parquet", "link tmp/joined"),
    "the joined file with its name, the parts removed": ("jsonl", "link tmp/joined", "unlink complete.json"),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_goes_on(model: Path, wholes: dict[str, Whole], tmp_path: Path, embedded: list[str], point: str):
    kind, *patterns = POINTS[point]
    check_kill(wholes[kind], Job(model, tmp_path, kind), wholes[kind].at(*patterns), embedded)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_wherever_it_was_killed(
    model: Path, wholes: dict[str, Whole], tmp_path: Path, embedded: list[str], chance: Random, kind: str
):
    """Thirty kills over the formats: three before the first durable part, eighteen after it, nine from the join on."""
    whole = wholes[kind]
    first, join = whole.at("replace tmp/000000.json") + 1, whole.at("fsync tmp/joined")
    points = [chance.randrange(first), *chance.sample(range(first, join), 6)]
    for at in [*points, *chance.sample(range(join, len(whole.calls)), 3)]:
        (tmp_path / str(at)).mkdir()
        check_kill(whole, Job(model, tmp_path / str(at), kind), at, embedded)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_killed_again_and_again(
    model: Path, wholes: dict[str, Whole], tmp_path: Path, chance: Random, kind: str
):
    job, ends = Job(model, tmp_path, kind), []
    while not ends or ends[-1] == -signal.SIGKILL:
        ends.append(job.forked(chance.randrange(5, 25))[0])
        assert len(ends) < 100
    assert len(ends) > 5 and ends[-1] in (1, 2)  # an output that exists, if the last kill was at the very end
    wholes[kind].check(job)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_says_what_is_kept(
    run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path, embedded: list[str],
    monkeypatch: pytest.MonkeyPatch, by: int,
):  # fmt: skip
    job, real = Job(model, tmp_path, "parquet"), MethodsEmbedder.__call__

    def interrupted(self, given, *rest):
        if TEXTS[13] in given:
            signal.raise_signal(by)
        return real(self, given, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(MethodsEmbedder, "__call__", interrupted)
        ended = run(*job.words)
    assert (ended.code, ended.out) == (130, "")
    assert ended.err == (f"interrupted: 12 rows kept in {job.parts}; the same command goes on from there\n")
    embedded.clear()
    ended = run(*job.words)
    assert ended.code == 1 and ended.err.splitlines()[0] == "12 rows done before"
    assert embedded == missing(3)
    wholes["parquet"].check(job)


def test_an_interruption_before_the_first_part_leaves_nothing(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job = Job(model, tmp_path, "npy")
    monkeypatch.setattr(MethodsEmbedder, "open", lambda *_: signal.raise_signal(signal.SIGINT))
    ended = run(*job.words)
    assert (ended.code, ended.err) == (130, "interrupted: no window was finished, and nothing is kept\n")
    assert job.files == ["in.txt"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk(run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path, embedded: list[str], kind: str):
    job = Job(model, tmp_path, kind)
    with disk_of(max(wholes[kind].out.stat().st_size - 1, 1)):
        ended = run(*job.words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        f"error: {job.out} cannot be written: File too large; 26 rows kept in {job.parts}; the same command "
        "goes on from there\n"
    )
    embedded.clear()
    assert run(*job.words).code == 1 and not embedded
    wholes[kind].check(job)


def test_a_disk_that_is_full_in_the_middle_of_a_part(run: Run, model: Path, tmp_path: Path, embedded: list[str]):
    texts = [*TEXTS[:8], "x" * 40_000, *TEXTS[8:]]
    job = Job(model, tmp_path, "jsonl", "--on-long", "ignore", texts=texts)
    with disk_of(20_000):
        ended = run(*job.words)
    assert ended.code == 2 and f"File too large; 8 rows kept in {job.parts}; the" in ended.last
    assert job.finished == [0, 1] and not list((job.parts / "tmp").iterdir())
    embedded.clear()
    assert run(*job.words).code == 1
    assert embedded == [text for text in texts[8:] if text]
    assert [json.loads(line)["text"] for line in job.out.read_text().splitlines()] == texts


def test_a_second_writer_is_refused(run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path):
    """The first one is stopped in the middle of its work, and ends it afterwards."""
    job = Job(model, tmp_path, "npy")
    stopped = os.fork()
    if not stopped:
        code = forked(job.words, tmp_path / "log", wholes["npy"].at("replace tmp/000002.json"), signal.SIGSTOP)[0]
        os._exit(code)
    calls = tmp_path / "log.calls"
    try:
        while not calls.exists() or len(calls.read_text().splitlines()) < wholes["npy"].at("replace tmp/000002.json"):
            os.sched_yield()
        ended = run(*job.words)
        assert ended.code == 2 and f"another process is writing {job.out}" in ended.err
    finally:
        children = Path(f"/proc/{stopped}/task/{stopped}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGCONT)
        _, status = os.waitpid(stopped, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    wholes["npy"].check(job)


def begun(model: Path, whole: Whole, folder: Path, kind: str, *more: object) -> Job:
    """A job of which three windows are finished."""
    job = Job(model, folder, kind, *more)
    assert job.forked(whole.at("replace tmp/000003.json"))[0] == -signal.SIGKILL and job.finished == [0, 1, 2]
    return job


@pytest.mark.parametrize("damages", [("a bit", "the rejects"), ("cut", "gone", "the marker")])
def test_a_damaged_part_is_embedded_again(
    run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path, embedded: list[str], damages: tuple[str, ...]
):
    job = begun(model, wholes["npy"], tmp_path, "npy")
    for number, damage in enumerate(damages):
        part = job.parts / "shards" / f"{number:06}.npy"
        if damage == "a bit":
            content = bytearray(part.read_bytes())
            content[-3] ^= 4
            part.write_bytes(content)
        elif damage == "cut":
            os.truncate(part, 100)
        elif damage == "gone":
            part.unlink()
        else:
            folder = job.parts / ("done" if damage == "the marker" else "rejects")
            (folder / f"{number:06}.json{'l' * (damage == 'the rejects')}").write_text('{"rows": 4')
    said = run(*job.words).err.splitlines()
    left = 3 - len(damages)
    for number, line in enumerate(said[: len(damages)]):
        assert line == f"warning: part {number:06} in {job.parts} is damaged: its rows are embedded again"
    assert said[len(damages) : -1] == ([f"{left * WINDOW} rows done before"] if left else [])
    assert embedded == [text for text in TEXTS[: WINDOW * len(damages)] if text] + missing(3)
    wholes["npy"].check(job)


def test_another_setting_is_refused_by_its_name(run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path):
    job = begun(model, wholes["npy"], tmp_path, "npy")
    other = tiny("bert", tmp_path / "other")
    fix = ": give the same command, or --overwrite to start anew\n"
    for changed, told in {
        ("--normalize",): "--normalize false, and now it is true",
        ("--max-length", 9): "--max-length not given, and now it is 9",
        ("--window", 5): "--window 4, and now it is 5",
        ("--method", "echo"): '--method ["classical"], and now it is ["classical", "echo"]',
        ("-m", other): f"--model {model}, and now it is {other}",
    }.items():
        ended = run(*job.words, *changed)
        if changed[0] == "--method":
            assert "an .npy file holds one vector a row" in ended.err
            continue
        assert (ended.code, ended.err) == (2, f"error: {job.parts} was begun with {told}{fix}")
        assert job.finished == [0, 1, 2]


def test_overwrite_starts_anew_where_settings_differ_and_goes_on_where_they_do_not(
    run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path, embedded: list[str]
):
    job = begun(model, wholes["npy"], tmp_path, "npy")
    assert run(*job.words, "--overwrite").code == 1 and embedded == missing(3)
    wholes["npy"].check(job)
    job.out.unlink()
    job = begun(model, wholes["npy"], tmp_path, "npy")
    embedded.clear()
    assert run(*job.words, "--overwrite", "--normalize").code == 1 and embedded == missing(0)


def test_another_library_version_is_refused(run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path):
    job = begun(model, wholes["npy"], tmp_path, "npy")
    path = job.parts / "job.json"
    written = json.loads(path.read_text())
    assert written["made_by"]["identity"]["vector"] and written["made_by"]["fingerprint"]["vector"]
    written["made_by"]["version"]["torch"] = "1.0"
    path.write_text(json.dumps(written))
    ended = run(*job.words)
    assert ended.code == 2 and "was begun with version torch 1.0, and now it is 2." in ended.err


def test_another_number_of_threads_is_refused(run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path):
    job = begun(model, wholes["npy"], tmp_path, "npy")
    torch.set_num_threads(2)
    ended = run(*job.words)
    assert ended.code == 2 and "was begun with OMP_NUM_THREADS 1, and now it is 2: give the same" in ended.err
    torch.set_num_threads(1)
    assert run(*job.words).code == 1
    wholes["npy"].check(job)


def test_a_changed_input_is_refused_by_its_row(run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path):
    job = begun(model, wholes["npy"], tmp_path, "npy")
    for texts, told in (
        ([*TEXTS[:6], "another text", *TEXTS[7:]], "row 7 (line 7) is another"),
        (TEXTS[:10], "row 11 is another"),
        (TEXTS[:4], "it ends after row 4, and more were read before"),
        ([*TEXTS[:3], "", *TEXTS[3:]], "row 4 (line 4) is another"),
    ):
        job.give(texts)
        ended = run(*job.words)
        assert ended.code == 2 and ended.last == (
            f"error: {job.source} has changed since {job.parts} was begun: {told}; nothing was removed: give it as it "
            "was, or --overwrite to embed what changed"
        )
        assert job.finished == [0, 1, 2]
    job.give(TEXTS)
    assert run(*job.words).code == 1
    wholes["npy"].check(job)


def test_overwrite_embeds_the_windows_that_changed(
    run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path, embedded: list[str]
):
    job = begun(model, wholes["npy"], tmp_path, "npy")
    texts = [*TEXTS[:6], "another text", *TEXTS[7:10]]
    job.give(texts)
    assert run(*job.words, "--overwrite").code == 1
    assert embedded == [text for text in texts[4:] if text]
    (tmp_path / "new").mkdir()
    new = Job(model, tmp_path / "new", "npy", texts=texts)
    assert run(*new.words).code == 1 and new.out.read_bytes() == job.out.read_bytes()
    assert new.rejects.read_bytes() == job.rejects.read_bytes() and not job.parts.exists()


def test_the_standard_input_goes_on_too(
    run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path, embedded: list[str]
):
    job = begun(model, wholes["npy"], tmp_path, "npy")
    job.words[job.words.index(job.source)] = "-"
    ended = run(*job.words, stdin=job.source.read_bytes())
    assert ended.code == 1 and embedded == missing(3)
    wholes["npy"].check(job)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_words_go_on_too(run: Run, model: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": f"the bank {i}", "words": ["bank", "the"]}) + "\n" for i in range(9)))
    words = ["words", "-m", model, "--method", "classical", "-i", source, "--window", 4, "-o"]
    assert run(*words, tmp_path / f"whole.{kind}").code == 0
    code, calls = forked([*words, tmp_path / f"out.{kind}"], tmp_path / "log", 40)
    assert code == -signal.SIGKILL and any("done" in call for call in calls)
    ended = run(*words, tmp_path / f"out.{kind}")
    assert ended.code == 0 and "rows done before" in ended.err
    assert (tmp_path / f"out.{kind}").read_bytes() == (tmp_path / f"whole.{kind}").read_bytes()


def test_files_of_others_in_the_folder_stay(run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path):
    job = begun(model, wholes["npy"], tmp_path, "npy")
    mine = [job.parts / "notes.txt", job.parts / "shards" / "mine.npy"]
    for path in mine:
        path.write_text("mine")
    assert run(*job.words).code == 1
    assert [path.read_text() for path in mine] == ["mine", "mine"]
    assert sorted(path.name for path in job.parts.iterdir()) == ["lock", "notes.txt", "shards"]
    job.out.unlink()
    foreign = tmp_path / "other.npy.parts"
    foreign.mkdir()
    (foreign / "mine").write_text("mine")
    ended = run(*[word if word != job.out else tmp_path / "other.npy" for word in job.words])
    assert ended.code == 2 and ended.err == f"error: {foreign} was not made by Afterword: move it away\n"


def test_the_rows_of_a_file_that_is_a_link(run: Run, model: Path, wholes: dict[str, Whole], tmp_path: Path):
    (tmp_path / "there").mkdir()
    job = Job(model, tmp_path / "there", "npy")
    link = tmp_path / "link.npy"
    link.symlink_to(job.out)
    words = [word if word != job.out else link for word in job.words]
    assert run(*words).code == 1
    assert link.is_symlink() and job.out.read_bytes() == wholes["npy"].out.read_bytes()
    assert not list(tmp_path.glob("*.parts")) and not job.parts.exists()


def test_a_parquet_file_has_a_row_group_for_each_window(wholes: dict[str, Whole]):
    file = pq.ParquetFile(wholes["parquet"].out)
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [4, 4, 4, 4, 4, 4, 2]
