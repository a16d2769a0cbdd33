"""`embed -o FOLDER/`: killed between any two of its steps, the same command gives the bytes of an unbroken run."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from tests.agreement import close
from tests.cli.conftest import Run
from tests.killed import forked

from afterword import Encoder
from afterword.errors import TextsUnknown
from afterword.jobs import run as run_module
from afterword.jobs.job import Job

TEXTS = ["one", "", "银行 and a bank", "four", "five"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return texts(tmp_path / "in.jsonl")


def texts(file: Path) -> Path:
    file.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(TEXTS)))
    return file


def command(llama: Path, rows: Path, folder: Path, *more: object) -> list[object]:
    return ["embed", "-m", llama, "-i", rows, "-o", f"{folder}/", "--shard-rows", 2, "--id", "id", *more]


def files(folder: Path) -> dict[str, bytes]:
    names = [*(folder / "shards").glob("*.parquet"), folder / "rejects.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in names}


def test_a_folder_of_shards(run: Run, llama: Path, rows: Path, tmp_path: Path) -> None:
    words = command(llama, rows, tmp_path / "job")
    ended = run(*words)
    assert (ended.code, ended.out) == (1, "") and "5 rows in" in ended.err and "1 rejected, listed in" in ended.err
    table = Job.open(tmp_path / "job").read().read_all()
    good = [i for i, text in enumerate(TEXTS) if text]
    vectors = table["vector"].to_pylist()
    wanted = Encoder.load(llama).encode([TEXTS[i] for i in good])
    assert close(np.array([vectors[i] for i in good], np.float32), wanted, 1e-5)
    before = files(tmp_path / "job")
    again = run(*words)
    assert again.code == 1 and "5 rows done before" in again.err and files(tmp_path / "job") == before
    other = run(*words, "--normalize")
    assert other.code == 2 and "begun with --normalize false, and now it is true" in other.err
    assert run(*words, "--normalize", "--overwrite").code == 1 and files(tmp_path / "job") != before


@pytest.fixture(scope="module")
def whole(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, bytes]]:
    """How many calls an unbroken run makes, and the files that it leaves."""
    folder = tmp_path_factory.mktemp("whole")
    texts(folder / "in.jsonl")
    code, calls = forked(command(llama, folder / "in.jsonl", folder / "job"), folder / "log")
    assert code == 1 and len(calls) > 15
    return len(calls), files(folder / "job")


@pytest.mark.parametrize(
    ("by", "step"),
    [
        pytest.param(signal.SIGKILL, 1, marks=pytest.mark.soak),
        (signal.SIGKILL, 6),
        (signal.SIGTERM, 11),
        (signal.SIGINT, 13),
    ],
)
def test_killed_between_any_two_steps(
    run: Run, llama: Path, rows: Path, whole: tuple[int, dict[str, bytes]], tmp_path: Path, by: int, step: int
) -> None:
    log = tmp_path / "runs" / "log"
    log.parent.mkdir()
    calls, wanted = whole
    for at in range(0, calls, step):
        folder = log.parent / f"job{at}"
        words = command(llama, rows, folder)
        code, _ = forked(words, log, at, by)
        assert code == (-by if by == signal.SIGKILL else 130), log.read_text()
        if by != signal.SIGKILL and (folder / "job.json").exists():
            assert (
                f"the same command goes on with {folder}" in (said := log.read_text()) or "goes on from there" in said
            )
        ended = run(*words)
        assert ended.code == 1, ended.err
        assert files(folder) == wanted and Job.open(folder).complete


def test_what_a_folder_needs(run: Run, llama: Path, rows: Path, tmp_path: Path) -> None:
    for words, message in (
        (["-o", f"{tmp_path}/a/", "a text"], "a job reads files"),
        (["-o", f"{tmp_path}/a/", "-i", "-"], "a job reads files"),
        (["-o", f"{tmp_path}/a/", "-i", rows, "--save", tmp_path / "e"], "a job saves no encoder"),
        (["-o", f"{tmp_path}/a/", "-i", rows, "--rejects", tmp_path / "r"], "lists them in FOLDER/rejects.jsonl"),
        (["-o", f"{tmp_path}/a/", "-i", rows, "--workers", "none"], "give a number of processes, or auto"),
        (["-o", tmp_path / "a.jsonl", "-i", rows, "--workers", "2"], "it goes with a folder"),
        (["-o", tmp_path / "a.jsonl", "-i", rows, "-i", rows], "several files go into a job"),
        (["-o", f"{tmp_path}/a/", "-i", tmp_path / "no.jsonl"], "no.jsonl does not exist"),
        (["-o", f"{tmp_path}/a/", "-i", rows, "--id", "nope"], "has no column 'nope'"),
        (["-o", f"{tmp_path}/a/", "-i", rows, "--keep", "row"], "the output has a column 'row' of its own"),
    ):
        ended = run("embed", "-m", llama, *words)
        assert ended.code == 2 and message in ended.err, ended.err
        assert not (tmp_path / "a").exists()


def test_too_many_rejects_end_the_run(run: Run, llama: Path, rows: Path, tmp_path: Path) -> None:
    ended = run(*command(llama, rows, tmp_path / "job", "--max-rejects", 0))
    assert ended.code == 2 and "1 row has no vector, and --max-rejects is 0" in ended.err
    assert run(*command(llama, rows, tmp_path / "job")).code == 1
    before = files(tmp_path / "job")
    finished = run(*command(llama, rows, tmp_path / "job", "--max-rejects", 0))
    assert finished.code == 2 and finished.last == ended.last and files(tmp_path / "job") == before
    assert run(*command(llama, rows, tmp_path / "job", "--max-rejects", 1)).code == 1


@pytest.mark.parametrize("place", ["jobs.rows.files_of", "jobs.rows.Inputs.kinds", "jobs.job.Job.create"])
def test_an_interruption_at_the_start_of_a_resumed_run_says_how_to_go_on(
    run: Run, llama: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    words = command(llama, rows, tmp_path / "job")

    def interrupted() -> str:
        with monkeypatch.context() as patch:
            patch.setattr(f"afterword.{place}", lambda *_, **__: signal.raise_signal(signal.SIGINT))
            ended = run(*words)
        assert ended.code == 130
        return ended.last

    assert interrupted() == "interrupted" and not (tmp_path / "job").exists()
    assert run(*words).code == 1
    assert interrupted() == f"interrupted: what is finished is kept; the same command goes on with {tmp_path / 'job'}"


def test_without_texts(run: Run, llama: Path, rows: Path, tmp_path: Path) -> None:
    assert run(*command(llama, rows, tmp_path / "job", "--no-text")).code == 1
    assert Job.open(tmp_path / "job").read().schema.names == ["row", "id", "problem", "vector"]


def test_a_dry_run_writes_nothing(run: Run, llama: Path, rows: Path, tmp_path: Path) -> None:
    ended = run(*command(llama, rows, tmp_path / "job", "--dry-run"))
    assert ended.code == 0 and "rows    5, 1 of them without a text" in ended.out and "4 texts" in ended.out
    assert not (tmp_path / "job").exists()


def test_workers_write_the_same_bytes(
    run: Run, llama: Path, rows: Path, whole: tuple[int, dict[str, bytes]], tmp_path: Path
) -> None:
    """One that starts as a program of its own; tests/jobs has two, of which one or both are killed."""
    workers = ["--workers", 1, "--threads", 1]
    ended = run(*command(llama, rows, tmp_path / "job", *workers))
    assert ended.code == 1 and "5 rows in" in ended.err, ended.err
    assert files(tmp_path / "job") == whole[1]
    other = run(*command(llama, rows, tmp_path / "job", *workers, "--on-long", "error"))
    assert other.code == 2 and "begun with --on-long warn" in other.err


def test_unknown_texts_of_all_shards_are_told_at_the_end(run: Run, bert: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("👍👍\na\n😡\n👍\n", "utf-8")
    words = ("embed", "-m", bert, "--method", "classical", "-i", tmp_path / "t.txt", "-o", f"{tmp_path}/v/")
    ended = run(*words, "--shard-rows", 2)
    assert ended.code == 0 and ended.err.splitlines().count(f"warning: {TextsUnknown(3)}") == 1
    assert Job.open(tmp_path / "v").result().unknown == 3


def test_a_finished_job_refuses_another_column(run: Run, gpt2: Path, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("a,b\none,two\n")
    words = ("embed", "-m", gpt2, "-i", tmp_path / "c.csv", "-o", f"{tmp_path}/v/", "--column")
    assert run(*words, "a").code == 0 and run(*words, "a").code == 0
    ended = run(*words, "b")
    assert ended.code == 2 and "was begun with --column a, and now it is b" in ended.err


def test_another_delimiter_is_told_once_in_each_run(run: Run, gpt2: Path, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.csv").write_bytes("text;id\né;1\ntwo;2\n".encode("cp1252"))
    files = [word for name in ("a", "b") for word in ("-i", tmp_path / f"{name}.csv")]
    words = ("embed", "-m", gpt2, *files, "--encoding", "cp1252", "-o", f"{tmp_path}/v/")
    told = f"{tmp_path / 'a.csv'}: read as ';'-separated (and 1 more file)"
    for more in (["--dry-run"], [], []):
        ended = run(*words, *more)
        assert ended.code == 0 and ended.err.count("separated") == 1 and told in ended.err.splitlines(), ended.err
    one = run(*words[:3], "-i", tmp_path / "c.csv", "--encoding", "cp1252", "-o", f"{tmp_path}/w/", "--dry-run")
    assert f"{tmp_path / 'c.csv'}: read as ';'-separated" in one.err.splitlines()


def test_a_dry_run_refuses_files_whose_kept_columns_differ(run: Run, gpt2: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,n\none,1\n")
    (tmp_path / "b.jsonl").write_text('{"text": "two", "n": 2}\n')
    inputs = ("-i", tmp_path / "a.csv", "-i", tmp_path / "b.jsonl")
    ended = run("embed", "-m", gpt2, *inputs, "--keep", "n", "-o", f"{tmp_path}/v/", "--dry-run")
    assert ended.code == 2 and "make the files alike" in ended.err and not (tmp_path / "v").exists()


def test_an_input_that_grows_while_it_is_embedded_is_told_of(
    run: Run, llama: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = run_module.run_job

    def grow(job: Job, *given: object) -> object:
        done = begin(job, *given)
        with rows.open("a") as file:
            file.write('{"id": 9, "text": "new"}\n')
        return done

    monkeypatch.setattr(run_module, "run_job", grow)
    ended = run(*command(llama, rows, tmp_path / "job"))
    assert f"warning: {rows} has another size than when the job was begun: rows that were added are not in" in ended.err
