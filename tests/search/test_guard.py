"""An index takes vectors of the encoder that made it, and of no other."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.search.rows import info, reader

from afterword import Encoder
from afterword.errors import DataError
from afterword.files import fingerprint
from afterword.jobs.stored import probes
from afterword.methods.serialize import to_json
from afterword.search.guard import check_encoder, check_settings
from afterword.search.index import Index, IndexInfo


@pytest.fixture(scope="module")
def mini() -> Encoder:
    return Encoder.load("afterword-mini", "classical")


@pytest.fixture
def made(mini: Encoder) -> IndexInfo:
    method = to_json(mini.method)
    return info(model="mini", method=method, identity=mini.identity, dimension=mini.dimension, probes=probes(mini))


def test_the_encoder_that_made_it_is_accepted(mini: Encoder, made: IndexInfo):
    check_encoder(Path("a"), made, mini)


def test_another_version_of_a_library_is_accepted(mini: Encoder, made: IndexInfo, monkeypatch: pytest.MonkeyPatch):
    before = mini.fingerprint
    monkeypatch.setattr(fingerprint, "version", lambda name: "99.0")
    assert mini.fingerprint != before
    check_encoder(Path("a"), made, mini)


def test_another_encoder_of_the_same_width_is_refused(mini: Encoder, made: IndexInfo):
    other = Encoder.load("afterword-mini", "echo")
    assert other.dimension == made.dimension
    with pytest.raises(DataError, match=r"mini.*classical mean last.*echo-2 mean"):
        check_encoder(Path("a"), made, other)
    with pytest.raises(DataError, match=r"mini.* differ by \d"):
        check_encoder(Path("a"), made, replace(mini, max_length=3))


def test_changed_weights_are_seen_by_the_probes(mini: Encoder, made: IndexInfo):
    moved = replace(made, probes=made.probes + np.float32(0.01))  # type: ignore[operator]
    with pytest.raises(DataError, match=r"differ by \d"):
        check_encoder(Path("a"), moved, mini)


def test_another_width_is_refused(mini: Encoder, made: IndexInfo):
    with pytest.raises(DataError, match="another length"):
        check_encoder(Path("a"), replace(made, identity="2" * 32, probes=made.probes[:, :3]), mini)  # type: ignore[index]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"chunking": "256"}, "--chunk not set, and now it is 256"),
        ({"id_column": "n"}, "--id"),
        ({"late": True}, "--late"),
        ({"overlap": 8}, "--overlap not set, and now it is 8"),
    ],
)
def test_another_setting_is_named(tmp_path: Path, other: dict, named: str):
    index = Index.create(tmp_path / "a", reader(["x"]), info())
    check_settings(index, info())
    with pytest.raises(DataError, match=f"{index.folder} was made with {named}"):
        check_settings(index, info(**other))
