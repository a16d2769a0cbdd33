"""Late against plain chunks, on toy articles."""

import lzma
from itertools import pairwise
from pathlib import Path

import late_chunking
import numpy as np
import pytest
from tests.tiny import tiny

from afterword import Encoder, reba

FORM = late_chunking.Form("wiki.txt.xz", (150, 2000), 90, (8, 40))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    texts = [" ".join(f"Thing {t} is number {i}." for i in range(n)) for t, n in enumerate((20, 1, 25, 30))]
    (tmp_path / "wiki.txt.xz").write_bytes(lzma.compress("\n\n".join(texts).encode() + b"\n\n"))
    return tmp_path / "wiki.txt.xz"


def test_queries_are_held_out_of_the_chunks_that_they_name(corpus: Path):
    found = late_chunking.articles(corpus, FORM, 2)
    assert [own.text.split()[1] for own in found] == ["0", "2"]  # the second document is too short
    for own in found:
        assert len({k for _, k in own.queries}) == late_chunking.QUERIES
        assert all(query not in own.text for query, _ in own.queries)
        assert own.spans[0][0] == 0 and own.spans[-1][1] == len(own.text)
        assert all(a[1] == b[0] for a, b in pairwise(own.spans))
        for query, k in own.queries:  # the sentences around it are where it was
            number = int(query.split()[-1].rstrip("."))
            chunk = own.text[slice(*own.spans[k])]
            assert any(f"number {n}." in chunk for n in (number - 1, number + 1))


def test_gains_by_hand():
    queries, chunks = np.eye(2), np.array([[0.9, 0.1], [1.0, 0.0], [0.0, 1.0]])
    found = late_chunking.gains(queries, chunks, np.array([0, 0, 1]), [0, 0])
    assert found["chunk"] == pytest.approx([1 / np.log2(3), 1 / np.log2(3)])
    assert found["article"] == pytest.approx([1, 1 / np.log2(3)])


def test_a_run_and_its_table(corpus: Path, tmp_path: Path):
    found = late_chunking.articles(corpus, FORM, 3)
    made = late_chunking.run(Encoder.load(tiny("llama", tmp_path / "llama"), reba()), found)
    assert {len(own) for both in made.values() for own in both.values()} == {3 * late_chunking.QUERIES}
    same = {"language": "en", "model": "m", "method": "x", "gains": dict.fromkeys(made, made["late"])}
    assert late_chunking.table([same]).count("+0.00 ± 0.00") == 2
