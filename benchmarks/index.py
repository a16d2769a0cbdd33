"""An index of 200,000 real vectors: build, update, queries and recall, beside a flat scan and LanceDB's defaults.

    python benchmarks/index.py --packed

The texts are sentences of the English Wikipedia, embedded with MiniLM by a job in runs/index, which takes a quarter of
an hour, and goes on where it was stopped; later runs find it done. Queries are sentences of the STS benchmark, no rows
of the index. Queries are measured by the clock, one at a time; all else is CPU time of all threads.
"""

from __future__ import annotations

import csv
import io
import lzma
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from measure import Row, cpu_seconds, main
from models import ROOT, minilm_folder, stsb_sentences

from afterword import Encoder
from afterword.cli import main as afterword
from afterword.jobs import Job
from afterword.search.find import Search, find
from afterword.search.index import Index

WORK = ROOT / "runs" / "index"
TOP = 10


def sentences(count: int) -> Iterator[str]:
    """Different sentences of the English Wikipedia, of 40 to 200 characters."""
    shared = Path(os.environ.get("AFTERWORD_SHARED") or ROOT.parent / "shared")
    path, seen = shared / "data/corpus/enwiki_more.txt.xz", set[str]()
    if not path.exists():
        raise SystemExit(f"{path} is not there: set AFTERWORD_SHARED to the folder that holds data/corpus")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        split = (s for line in file for s in re.split(r"(?<=[.!?]) +(?=[A-Z])", line.strip()) if 40 <= len(s) <= 200)
        new = (s for s in split if s not in seen and not seen.add(s))
        yield from islice(new, count)


def command(*words: str) -> str:
    """Run a command of Afterword in this process; what it says."""
    with redirect_stderr(io.StringIO()) as said:
        code = afterword([*words, "--no-progress"])
    if code:
        raise SystemExit(f"afterword {' '.join(words)}: {said.getvalue()}")
    return said.getvalue()


def rows_file(path: Path, numbered: Iterator[tuple[int, str]]) -> Path:
    """A table of ids and texts."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["id", "text"])
        table.writerows((f"s{i}", text) for i, text in numbered)
    return path


def embedded(folder: Path, count: int) -> tuple[Path, np.ndarray]:
    """A finished job of so many sentences, and its vectors (count, 384)."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "sentences.csv"
    if not file.exists():
        rows_file(folder / "new.csv", enumerate(sentences(count))).rename(file)
    model = ("-m", str(minilm_folder()), "--device", "cpu")
    command("embed", *model, "-i", str(file), "--id", "id", "--column", "text", "-o", f"{folder}/vectors/",
            "--shard-rows", "4096", "--threads", "1")  # fmt: skip
    table = Job.open(folder / "vectors").read(["vector"]).read_all()["vector"].combine_chunks()
    return folder / "vectors", table.flatten().to_numpy().reshape(-1, table.type.list_size)


def of_lancedb(folder: Path, vectors: np.ndarray, ids: list[str], texts: list[str]) -> Any:
    """A table with LanceDB's own defaults for both indexes."""
    import lancedb
    import pyarrow as pa
    from lancedb.index import FTS, IvfPq

    lists = pa.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1])
    table = lancedb.connect(folder).create_table("rows", pa.table({"id": ids, "text": texts, "vector": lists}))
    table.create_index("vector", config=IvfPq(distance_type="cosine"))
    table.create_index("text", config=FTS())
    return table


def milliseconds(call: Callable[[np.ndarray], Any], queries: np.ndarray) -> float:
    """The median of a query, by the clock."""
    call(queries[0])
    times = []
    for query in queries:
        began = time.perf_counter()
        call(query)
        times.append(time.perf_counter() - began)
    return 1000 * median(times)


def nearest(table: Any, query: np.ndarray, exact: bool = False) -> set[str]:
    """The ids of the ten nearest rows; without ``exact``, by LanceDB's defaults."""
    search = table.search(query, vector_column_name="vector").distance_type("cosine").limit(TOP)
    search = search.bypass_vector_index() if exact else search
    return set(search.select(["id", "_distance"]).to_arrow()["id"].to_pylist())


def measure(quick: bool) -> list[Row]:
    """Build, update, search."""
    count = 300 if quick else 200_000
    queries_wanted = 8 if quick else 500
    with TemporaryDirectory() as name:
        here = Path(name)
        job, vectors = embedded(here if quick else WORK, count)
        model = ("-m", str(minilm_folder()), "--device", "cpu")
        encoder = Encoder.load(minilm_folder(), device="cpu")
        queries = encoder.encode(stsb_sentences()[:queries_wanted])
        folder = here / "rows"
        build = cpu_seconds(lambda: command("index", str(folder), *model, "--from", str(job), "--id", "id"))
        ids, texts = (column.to_pylist() for column in Job.open(job).read(["id", "text"]).read_all().columns)
        tables: list[Any] = []
        default = cpu_seconds(lambda: tables.append(of_lancedb(here / "default", vectors, ids, texts)))
        rows = [
            Row(f"index --from a job of {count:,} x 384, with its words, CPU seconds", build, "", "s"),
            Row("  beside LanceDB's table and its two indexes, by its defaults", build / default),
        ]
        rows += found_rows(Index.open(folder), tables[0], queries)
        rows.append(update(folder, model, texts, encoder, here))
    return rows


def found_rows(index: Index, default: Any, queries: np.ndarray) -> list[Row]:
    """Time and recall of queries."""
    true = [nearest(index.table, query, exact=True) for query in queries]

    def ours(query: np.ndarray, exact: bool = False) -> set[str]:
        (found,) = find(index, ["query"], query[None], Search(TOP, "vector", exact=exact))
        return {hit.id for hit in found.hits}

    def flat(query: np.ndarray) -> set[str]:
        return ours(query, True)

    def theirs(query: np.ndarray) -> set[str]:
        return nearest(default, query)

    recalls, times = dict[str, float](), dict[str, float]()
    for name, call in {"ours": ours, "flat": flat, "defaults": theirs}.items():
        recalls[name] = float(np.mean([len(t & call(q)) / TOP for t, q in zip(true, queries, strict=True)]))
        times[name] = milliseconds(call, queries)
    return [
        Row(f"recall@10 of {len(queries)} queries that are no rows", recalls["ours"], ">= 0.95", ""),
        Row("  of LanceDB's defaults", recalls["defaults"], "", ""),
        Row("a query by vector, by the clock", times["ours"], "", "ms"),
        Row("  beside a flat scan of the same index", times["ours"] / times["flat"], "<= 1", parts=times),
        Row("  beside LanceDB's defaults", times["ours"] / times["defaults"]),
    ]


def update(folder: Path, model: tuple[str, ...], texts: list[str], encoder: Encoder, here: Path) -> Row:
    """Change every hundredth text."""
    changed = {i: f"{texts[i]} It was changed." for i in range(0, len(texts), 100)}
    file = rows_file(here / "changed.csv", iter(changed.items()))
    words = ("index", str(folder), *model, "-i", str(file), "--id", "id", "--column", "text")
    embed = cpu_seconds(lambda: encoder.encode(list(changed.values())))
    seconds = cpu_seconds(lambda: command(*words))
    what = f"an update of {len(changed):,} texts, with words and vectors, CPU seconds"
    return Row(what, seconds, "", "s", {"embedding them": embed})


if __name__ == "__main__":
    main("index", measure)
