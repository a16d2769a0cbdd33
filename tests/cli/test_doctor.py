"""``afterword doctor``: the table, exit codes, references, and errors in one line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.doctor.servers import serving
from tests.tiny import tiny

from afterword import Encoder, classical
from afterword.post import Normalise


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("doctor")
    loaded = Encoder.load(tiny("bert", place / "bert"), classical("cls"))
    replace(loaded, post=(Normalise(),)).save(place / "saved")
    return place / "saved"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the table is one line, however long the path in it is."""
    monkeypatch.setenv("COLUMNS", "400")


def right(folder: Path):
    encoder = Encoder.load(folder)
    return lambda texts: encoder.encode(texts, on_long="ignore")


def test_the_table_and_json_are_the_same(run: Run, folder: Path):
    with serving(right(folder)) as url:
        table, as_json = run("doctor", url, "-m", folder), run("doctor", url, "-m", folder, "--json")
    assert table.code == as_json.code == 0
    checks = json.loads(as_json.out)["checks"]
    for line, check in zip(table.out.splitlines(), checks, strict=True):
        assert line.startswith(f"PASS  {check['check']}") and check["verdict"] == "PASS" and check["note"] in line


def test_a_reference_needs_no_model(run: Run, folder: Path, tmp_path: Path):
    file, now = tmp_path / "model.json", tmp_path / "server.json"
    assert run("doctor", "-m", folder, "--save-reference", file).code == 0
    assert run("doctor", "-m", folder, "--save-reference", file).code == 2  # it exists
    with serving(right(folder)) as url:
        assert run("doctor", url, "--reference", file).code == 0
        assert run("doctor", url, "--save-reference", now).code == 0
        assert run("doctor", url, "--reference", now).code == 0
    wrong = replace(Encoder.load(folder), method=classical())
    with serving(lambda texts: wrong.encode(texts, on_long="ignore")) as url:
        for reference in (file, now):
            ended = run("doctor", url, "--reference", reference)
            assert ended.code == 1 and [line.split()[1] for line in ended.out.splitlines() if "FAIL" in line] == [
                "same"
            ]
            assert "pass the model" in ended.out


def test_errors_take_one_line(run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with serving(right(folder), key="right") as url:
        monkeypatch.setenv("AFTERWORD_API_KEY", "wrong")
        keyed = run("doctor", url)
        nowhere = run("doctor", f"{url}/v2/rerank")
        monkeypatch.setenv("AFTERWORD_API_KEY", "right")
        (tmp_path / "other.json").write_text("{}")
        other = run("doctor", url, "--reference", tmp_path / "other.json")
    gone, alone, absent = run("doctor", url), run("doctor"), run("doctor", tmp_path / "none", "-m", folder)
    both = run("doctor", url, "-m", folder, "--against", "sentence-transformers")
    found = {
        "AFTERWORD_API_KEY": keyed,
        "404": nowhere,
        "other.json": other,
        url: gone,
        "TARGET": alone,
        "none": absent,
        "--against": both,
    }
    for words, ended in found.items():
        assert ended.code == 2 and words in ended.err and len(ended.err.splitlines()) == 1


def test_stored_vectors(run: Run, folder: Path, tmp_path: Path):
    texts, job, file, index = tmp_path / "texts.txt", tmp_path / "job", tmp_path / "v.parquet", tmp_path / "index"
    texts.write_text("\n".join(f"text {i} of the file" for i in range(20)) + "\n \n")
    run("embed", "-m", folder, "-i", texts, "-o", f"{job}/", "--prompt", "find: ")
    run("embed", "-m", folder, "-i", texts, "-o", file, "--truncate-dim", 16, "--normalize")
    run("index", index, "-m", folder, "-i", texts)
    for stored in (job, file, index):
        ended = run("doctor", stored, "-m", folder)
        assert ended.code == 0 and [line[:16] for line in ended.out.splitlines()] == [
            "PASS  same encod", "PASS  same space"
        ]  # fmt: skip
        wrong = run("doctor", stored, "-m", folder, "--method", "classical:pool=mean")
        assert wrong.code == 1 and "looks like first-token pooling" in wrong.out and wrong.out.count("FAIL") == 2


def test_sentence_transformers_in_place_of_a_server(run: Run, folder: Path):
    ended = run("doctor", "--against", "sentence-transformers", "-m", folder, "--json")
    assert ended.code == 0
    assert {check["verdict"] for check in json.loads(ended.out)["checks"]} == {"PASS"}
