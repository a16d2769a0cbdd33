"""From texts to token ids on disk: train the tokenizer, write uint16, never half a file.

`pretrain_mini.py` is the command; this file has no command line of its own.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from mini.corpus import LANGUAGE, SHARES, Pieces, RecipeError

BOS, EOS = "<s>", "</s>"  # tokens 0 and 1; EOS also pads

# ---- tokenizer ---------------------------------------------------------------------------------

# Pre-tokens, in this order: single digits; single Han characters (a token never straddles two
# Chinese words, so word vectors have exact borders, and the common characters all get a token);
# English contractions; words with their leading space; marks; white space.
PRE_TOKENS = (
    r"\p{N}|\p{Han}|'(?:[sdmt]|ll|ve|re)(?!\p{L})| ?[\p{L}\p{M}&&[^\p{Han}]]+"
    r"| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
)

# With equal bytes of both languages 2,138 Han characters became tokens, and characters of daily
# speech, rare in an encyclopaedia, did not. With 2.5 times as much Chinese 2,751 do (98.6 % of
# zhwiki's running text), and English takes 2 % more tokens.
SAMPLE_RATIO = 2.5


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer: every byte is a token, so nothing is ever unknown.

    Args:
        texts: a sample balanced over the languages.
        vocab_size: number of tokens with the 2 special ones and the 256 bytes.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    start = processors.TemplateProcessing(single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, 0)])
    # offsets keep the leading space of a word: then they cover the text without a hole
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), start])
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write the tokenizer as AutoTokenizer expects it."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    fast.save_pretrained(folder)
    # transformers 5 writes a class name that transformers 4 does not know; both know this one
    settings = folder / "tokenizer_config.json"
    text = settings.read_text().replace("TokenizersBackend", "PreTrainedTokenizerFast")
    write_text(settings, text)


def balanced_sample(corpus: dict[str, Pieces], english: int, seed: int) -> Iterator[str]:
    """Yield training texts: `english` bytes of English, SAMPLE_RATIO times that of Chinese."""
    for language, ratio in (("en", 1.0), ("zh", SAMPLE_RATIO)):
        texts = [t for name in corpus if LANGUAGE[name] == language for t in corpus[name].train]
        left = english * ratio
        for i in np.random.default_rng(seed).permutation(len(texts)):
            if left <= 0:
                break
            yield texts[i]
            left -= len(texts[i].encode())


# ---- files that are whole or not there ---------------------------------------------------------


def no_space(error: Exception, path: Path) -> Exception:
    """Turn "no space left" into a line for the user; leave every other error as it is."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or "os error 28" in str(error):  # how safetensors tells it
        return RecipeError(f"no space left for {path}; free some and run the same command again")
    return error


def write_atomic(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file beside its place, then rename it: a reader never sees half of it.

    Raises:
        RecipeError: no space is left; what was at `path` before is untouched.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except Exception as error:
        part.unlink(missing_ok=True)
        raise no_space(error, path) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_atomic(path, lambda file: file.write(text.encode()))


# ---- packing -----------------------------------------------------------------------------------


def pack(tokenizer: Tokenizer, pieces: list[str], path: Path, seed: int) -> int:
    """Write BOS piece EOS BOS piece EOS ... as uint16 token ids, in a shuffled order.

    Returns:
        The number of tokens written.
    """
    order = np.random.default_rng(seed).permutation(len(pieces))
    eos = tokenizer.token_to_id(EOS)
    count = 0

    def write(file: BinaryIO) -> None:
        nonlocal count
        for start in range(0, len(order), 4096):
            batch = tokenizer.encode_batch_fast([pieces[i] for i in order[start : start + 4096]])
            ids = np.concatenate([np.array([*one.ids, eos], np.uint16) for one in batch])
            file.write(ids.tobytes())
            count += len(ids)

    write_atomic(path, write)
    return count


def prepare(corpus: dict[str, Pieces], folder: Path, vocab: int, english: int, seed: int) -> None:
    """Train the tokenizer and pack every source; print the overlap found per evaluation set.

    Args:
        corpus: the texts by source.
        folder: gets tokenizer/, <source>.train.bin, <source>.held_out.bin and, last, packed.json.
        vocab: number of tokens.
        english: bytes of English that the tokenizer is trained on.
        seed: of the order of the texts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(balanced_sample(corpus, english, seed), vocab)
    save_tokenizer(tokenizer, folder / "tokenizer", 512)
    report: dict[str, dict[str, int]] = {"tokens": {}, "characters": {}, "overlap": {}}
    for name, pieces in corpus.items():
        for split, texts in (("train", pieces.train), ("held_out", pieces.held_out)):
            key = f"{name}.{split}"
            report["tokens"][key] = pack(tokenizer, texts, folder / f"{key}.bin", seed)
            report["characters"][key] = sum(map(len, texts))
            print(f"{key}: {report['tokens'][key]:,} tokens", file=sys.stderr)
        for overlap, count in sorted(pieces.hits.items()):
            report["overlap"][f"{name} in {overlap}"] = count
            print(f"overlap: {count} of {name} in {overlap}, dropped", file=sys.stderr)
    write_text(folder / "packed.json", json.dumps(report, indent=1, ensure_ascii=False))


# ---- reading back ------------------------------------------------------------------------------


class Blocks:
    """Draws blocks of tokens from the packed sources by their shares.

    Which block is the n-th depends only on the seed and on n: a resumed run needs no position in
    the data besides its step, and a longer run begins like a shorter one.
    """

    def __init__(self, folder: Path, context: int, count: int, seed: int) -> None:
        """Choose `count` blocks of `context` tokens; nothing is read before it is needed."""
        self.context = context
        self.tokens = {n: np.memmap(folder / f"{n}.train.bin", np.uint16, "r") for n in SHARES}
        shares = list(SHARES.values())
        self.source = np.random.default_rng(seed).choice(len(shares), count, p=shares)  # (count,)
        self.block = np.zeros(count, np.int64)
        for i, name in enumerate(SHARES):
            places = np.flatnonzero(self.source == i)
            self.block[places] = self._walk(name, len(places), np.random.default_rng([seed, i]))

    def _walk(self, name: str, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Every block once in random order, and again in another order if that is not enough."""
        total = (len(self.tokens[name]) - 1) // self.context
        if total < 1:
            raise RecipeError(f"too little text in source {name}: less than one block of tokens")
        passes = [rng.permutation(total) for _ in range(count // total + 1)]
        return np.concatenate(passes)[:count]

    def rows(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return blocks start..stop, (stop - start, context + 1): neighbours share one token."""
        names, size = list(SHARES), self.context
        chosen = zip(self.source[start:stop], self.block[start:stop] * size, strict=True)
        rows = [self.tokens[names[source]][at : at + size + 1] for source, at in chosen]
        return np.stack(rows).astype(np.int64)
