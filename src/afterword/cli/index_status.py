"""What is in an index, and what a run did to it, in lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import plural

if TYPE_CHECKING:
    from ..search.index import Index


def maintain(folder: Path, optimize: bool, as_json: bool) -> int:
    """Print what is in an index; or put new rows into its indexes and remove old versions."""
    from ..search.index import Index
    from ..search.tune import optimize as optimized
    from ..search.write import writing

    index = Index.open(folder)
    if optimize:
        with writing(folder):
            optimized(index)
    values = status_of(index)
    typer.echo(
        json.dumps(values, ensure_ascii=False) if as_json else "\n".join(f"{k:<12} {v}" for k, v in values.items())
    )
    return 0


def status_of(index: Index) -> dict[str, Any]:
    """What is in an index, by name."""
    from ..search.index import VECTOR
    from ..search.tune import has_index

    info = index.info
    return {
        "rows": index.rows,
        "model": info.model,
        "method": info.method.get("name", ""),
        "dimension": info.dimension,
        "chunk": (info.chunking or "whole texts") + (f", {info.overlap} shared" if info.overlap else ""),
        "kept": ", ".join(index.kept) or "nothing",
        "text search": info.language if info.text_search else "no",
        "vector index": "yes" if has_index(index, VECTOR) else "no",
        "bytes": sum(path.stat().st_size for path in index.folder.rglob("*") if path.is_file()),
    }


def summary(embedded: int, counts: Mapping[str, int], deleted: int, index: Index) -> str:
    """The last line of a run."""
    parts = [f"{embedded:,} embedded"]
    parts += [f"{counts[name]:,} {name}" for name in ("known", "updated", "repeated") if counts[name]]
    parts += [f"{deleted:,} deleted"] if deleted else []
    return f"{', '.join(parts)}; {index.folder} has {plural(index.rows, 'row')}"
