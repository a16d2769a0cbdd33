"""Late against plain chunks: which finds the place in Wikipedia that a held-out sentence was taken from?

    python recipes/late_chunking.py --data ../shared/data --out runs/late_chunking

Whole articles are cut into chunks of whole sentences. Four sentences are taken out of each article, each from another
chunk, and are the queries; every chunk of every article is searched. Each chunk has two vectors, late (from a forward
of its article) and plain (of its own text alone). Two metrics, nDCG@10: "chunk" asks for the chunk that the sentence
was taken from, "article" for any chunk of its article (an article ranks by its best chunk). What is finished lies in
<out>/*.json and is not run again; --quick is one model and twelve articles.
"""

from __future__ import annotations

import argparse
import json
import lzma
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from afterword import Encoder
from afterword.tasks.results import aligned
from afterword.text.words import split

QUERIES = 4  # of each article
METHODS = ("classical", "reba:pool=mean", "echo")
MODELS: dict[str, dict[str, tuple[str, ...]]] = {
    "smollm2": {"en": METHODS},
    "gemma3": {"en": METHODS, "zh": METHODS},
    "minilm": {"en": METHODS},
}
"""The methods of each model, by language."""
RUNS = sorted(
    ((language, model, method) for model, of in MODELS.items() for language, own in of.items() for method in own),
    key=lambda run: METHODS.index(run[2]) if run[2] in METHODS else 0,
)
"""All of them, those of one copy first, which take half the time."""


@dataclass(frozen=True)
class Form:
    """What is taken from a corpus, in characters.

    Args:
        file: the corpus.
        article: the shortest and the longest article.
        chunk: the longest chunk of whole sentences.
        query: the shortest and the longest query.
    """

    file: str
    article: tuple[int, int]
    chunk: int
    query: tuple[int, int]


FORMS = {
    "en": Form("enwiki.txt.xz", (2500, 6000), 250, (40, 160)),
    "zh": Form("zhwiki.txt.xz", (900, 2500), 80, (12, 50)),
}


@dataclass
class Article:
    """An article without its queries: spans of its chunks; queries, each with the number of its chunk."""

    text: str
    spans: list[tuple[int, int]]
    queries: list[tuple[str, int]]


def documents(file: Path) -> Iterator[str]:
    """The documents of a corpus, which blank lines separate."""
    lines: list[str] = []
    with lzma.open(file, "rt", encoding="utf-8") as corpus:
        for line in corpus:
            if line.strip():
                lines.append(line)
            elif lines:
                yield "".join(lines)
                lines = []


def article(text: str, form: Form, chance: Random) -> Article | None:
    """The article with its queries held out, from chunks that keep other sentences; None where that cannot be."""
    letters = [(i, i + 1) for i in range(len(text))]
    chunks = []
    for a, b in split(text, letters, "sentences", form.chunk, None, "the article"):
        part = text[a:b]
        chunks.append([part[c:d] for c, d in split(part, letters[: len(part)], "sentences", None, None, "the chunk")])
    low, high = form.query
    fit = [k for k, own in enumerate(chunks) if len(own) > 1 and any(low <= len(s.strip()) <= high for s in own)]
    if len(fit) < QUERIES:
        return None
    queries = []
    for k in sorted(chance.sample(fit, QUERIES)):
        query = chance.choice([s for s in chunks[k] if low <= len(s.strip()) <= high])
        chunks[k].remove(query)
        queries.append((query.strip(), k))
    ends = np.cumsum([0, *(len("".join(own)) for own in chunks)]).tolist()
    return Article("".join(map("".join, chunks)), list(pairwise(ends)), queries)


def articles(file: Path, form: Form, count: int, seed: int = 0) -> list[Article]:
    """The first so many articles of a corpus that have the right length, and from which queries can be taken."""
    chance, found, (low, high) = Random(seed), list[Article](), form.article
    for text in documents(file):
        if low <= len(text) <= high and (made := article(text, form, chance)) is not None:
            found.append(made)
        if len(found) == count:
            break
    return found


def gains(queries: Any, chunks: Any, article_of: Any, wanted: Any) -> dict[str, list[float]]:
    """nDCG@10 of each query, for its chunk and for its article: 1 / log2(1 + rank), 0 from rank 11 on.

    Args:
        queries: (q, D); ``chunks``: (c, D); both of length 1.
        article_of: (c,) the article of each chunk.
        wanted: (q,) the chunk that each query was taken from.
    """
    found: dict[str, list[float]] = {"chunk": [], "article": []}
    for scores, k in zip(queries @ chunks.T, wanted, strict=True):
        best = np.full(article_of.max() + 1, -np.inf)
        np.maximum.at(best, article_of, scores)
        ranks = {"chunk": 1 + (scores > scores[k]).sum(), "article": 1 + (best > best[article_of[k]]).sum()}
        for name, rank in ranks.items():
            found[name].append(1 / np.log2(1 + rank) if rank <= 10 else 0.0)
    return found


def run(encoder: Encoder, found: list[Article]) -> dict[str, dict[str, list[float]]]:
    """The gains of each query with late and with plain chunks."""
    texts, spans = [own.text for own in found], [own.spans for own in found]
    article_of = np.repeat(np.arange(len(found)), [len(own) for own in spans])
    first = np.cumsum([0, *map(len, spans)])
    wanted = [int(first[t]) + k for t, own in enumerate(found) for _, k in own.queries]
    queries = encoder.encode([query for own in found for query, _ in own.queries], normalize_embeddings=True)
    made = {}
    for name, late in (("late", True), ("plain", False)):
        rows = encoder.encode_chunks(texts, spans, late=late, normalize_embeddings=True)
        made[name] = gains(queries, np.concatenate([own.vectors for own in rows]), article_of, wanted)
    return made


def table(results: list[dict[str, Any]]) -> str:
    """Plain, late and their difference x 100, with half of its 95 % interval over the articles."""
    cells = [["", "", "", "chunk: plain", "late", "late - plain", "article: plain", "late", "late - plain"]]
    for row in results:
        line = [row["language"], row["model"], row["method"]]
        for metric in ("chunk", "article"):
            plain, late = (100 * np.array(row["gains"][name][metric]) for name in ("plain", "late"))
            of_articles = (late - plain).reshape(-1, QUERIES).mean(1)
            half = 1.96 * of_articles.std(ddof=1) / len(of_articles) ** 0.5
            line += [f"{plain.mean():.2f}", f"{late.mean():.2f}", f"{(late - plain).mean():+.2f} ± {half:.2f}"]
        cells.append(line)
    return aligned(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with corpus/")
    parser.add_argument("--out", type=Path, default=Path("runs/late_chunking"))
    parser.add_argument("--articles", type=int, default=16, help="of each language")
    parser.add_argument("--quick", action="store_true", help="smollm2 by classical, 12 English articles")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore", message=".* is causal")  # what the table is about
    args.out.mkdir(parents=True, exist_ok=True)
    results, count = [], 12 if args.quick else args.articles
    found = {name: articles(args.data / "corpus" / form.file, form, count) for name, form in FORMS.items()}
    for name, own in found.items():
        print(f"{name}: {len(own)} articles, {sum(len(one.spans) for one in own)} chunks", flush=True)
    for language, model, method in RUNS[:1] if args.quick else RUNS:
        path = args.out / f"{language} {model} {method.split(':')[0]} {count}.json".replace(" ", "-")
        if not path.exists():
            encoder = replace(Encoder.load(model, method), max_length=None)
            row = {"language": language, "model": model, "method": method}
            path.write_text(json.dumps({**row, "gains": run(encoder, found[language])}) + "\n", encoding="utf-8")
            print(path, flush=True)
        results.append(json.loads(path.read_text(encoding="utf-8")))
    results.sort(key=lambda row: (row["language"], row["model"]))
    print(table(results))


if __name__ == "__main__":
    main()
