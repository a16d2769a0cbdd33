"""Small indexes of given rows, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from afterword.search.index import IndexInfo, schema_of

DIMENSION = 4
PROBES = np.random.default_rng(0).standard_normal((8, DIMENSION)).astype(np.float32)


def info(**values: Any) -> IndexInfo:
    """What an index of four components was made by."""
    usual: dict[str, Any] = {
        "model": "a/model", "method": {"name": "m"}, "fingerprint": "f" * 32, "identity": "1" * 32,
        "dimension": DIMENSION, "normalized": False, "prompt": None, "probes": PROBES,
    }  # fmt: skip
    return IndexInfo(**{**usual, **values})


def reader(
    texts: Sequence[str], made_by: IndexInfo | None = None, ids: Sequence[str] | None = None, seed: int = 0
) -> pa.RecordBatchReader:
    """Rows of an index: each text with random components."""
    made_by = made_by or info()
    n = len(texts)
    vectors = np.random.default_rng(seed).standard_normal(n * made_by.dimension).astype(np.float32)
    ids = list(ids or map(str, range(n)))
    values = pa.FixedSizeListArray.from_arrays(pa.array(vectors), made_by.dimension)
    zeros, lengths = pa.array([0] * n, pa.int64()), pa.array([len(text) for text in texts], pa.int64())
    texts_ = pa.array(texts, pa.string())
    schema = schema_of(made_by)
    columns = [pa.array(ids, pa.string()), pa.array(ids, pa.string()), zeros, zeros, lengths, texts_, texts_, values]
    return pa.RecordBatchReader.from_batches(schema, [pa.record_batch(columns, schema=schema)])
