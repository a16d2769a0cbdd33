"""Measurements are kept whole, in the user's cache folder, and nothing breaks where they cannot be."""

import os
from pathlib import Path

import pytest

from afterword.backbone import linear_probe_cache as cache


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("AFTERWORD_CACHE", str(tmp_path / "deep" / "cache"))
    return tmp_path / "deep" / "cache"


def test_what_is_kept_is_read_again(place):
    assert cache.read("a.json") == {}
    cache.add("a.json", {"x": 1})
    cache.add("a.json", {"y": [2], "x": 3})
    assert cache.read("a.json") == {"x": 3, "y": [2]}
    assert [p.name for p in place.iterdir()] == ["a.json"]


def test_the_oldest_go(place, monkeypatch):
    monkeypatch.setattr(cache, "ENTRIES", 2)
    for i in range(4):
        cache.add("a.json", {str(i): i})
    assert cache.read("a.json") == {"2": 2, "3": 3}


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 200_000, b'{"a": NaN'])
def test_a_file_that_cannot_be_read_is_nothing(place, text):
    place.mkdir(parents=True)
    (place / "a.json").write_bytes(text)
    assert cache.read("a.json") == {}
    cache.add("a.json", {"x": 1})
    assert cache.read("a.json") == {"x": 1}


def test_a_place_that_cannot_be_written_breaks_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("AFTERWORD_CACHE", str(tmp_path / "file" / "below"))
    cache.add("a.json", {"x": 1})
    assert cache.read("a.json") == {}
    monkeypatch.setenv("AFTERWORD_CACHE", str(tmp_path))
    (tmp_path / "a.json").mkdir()  # cannot be replaced, whoever runs this
    cache.add("a.json", {"x": 1})
    assert cache.read("a.json") == {}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_where(monkeypatch, tmp_path):
    monkeypatch.delenv("AFTERWORD_CACHE")
    monkeypatch.setattr(cache.sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.folder() == tmp_path / ".cache" / "afterword"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache.folder() == tmp_path / "x" / "afterword"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.folder() == tmp_path / ".cache" / "afterword"
    monkeypatch.setenv("AFTERWORD_CACHE", "")
    assert cache.folder() is None
    cache.add("a.json", {"x": 1})
    assert cache.read("a.json") == {} and not os.listdir(tmp_path)
