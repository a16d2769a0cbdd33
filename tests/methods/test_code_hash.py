from pathlib import Path

import pytest

from afterword.methods.code_hash import code_hash
from afterword.methods.method_file import method_in_file


def test_the_cell_of_a_notebook_is_read(monkeypatch: pytest.MonkeyPatch):
    import linecache

    cell = "class Late:\n    def __call__(self):\n        return {}\n"
    hashes = []
    for number, value in enumerate((1, 2, 2)):
        code, name = cell.format(value), f"<ipython-input-{number}>"
        # a notebook keeps its cells in this way, without a time, so that they are never looked for on disk
        monkeypatch.setitem(linecache.cache, name, (len(code), None, code.splitlines(keepends=True), name))
        known = {"__name__": "__main__x"}
        exec(compile(code, name, "exec"), known)
        hashes.append(code_hash(known["Late"]))  # type: ignore[arg-type]
    assert None not in hashes
    assert hashes[0] != hashes[1] == hashes[2]


WEIGHTING = """
from afterword.methods import Method
from afterword.methods.weights import Weighting

FACTOR = {factor}

class Scaled(Weighting):
    kind = "scaled_{name}"

    def __call__(self, group, targets, reading):
        return FACTOR * targets

class Further(Scaled):
    kind = "further_{name}"

method = Method(weigh=Further())
"""


def test_helpers_of_the_same_file_and_bases_are_part_of_it(tmp_path: Path):
    codes = []
    for name, factor in (("one", 2), ("two", 3), ("three", 3)):
        file = tmp_path / f"{name}_scaled.py"
        file.write_text(WEIGHTING.format(name=name, factor=factor))
        method = method_in_file(f"@{file}:method")
        assert method is not None
        codes.append(method.weigh.code)
    assert None not in codes and len(set(codes)) == 3  # the names differ too
