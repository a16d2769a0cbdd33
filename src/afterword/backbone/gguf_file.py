"""GGUF files, which transformers reads and dequantises: check one, describe one, and parse one once per load."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from ..errors import MissingExtra, ModelError

GGUF = ".gguf"
MAGIC = b"GGUF"


def only_gguf(folder: Path) -> str:
    """The name of the GGUF file in a folder, or "" if there is none.

    Raises:
        ModelError: there are several.
    """
    names = sorted(path.name for path in folder.glob(f"*{GGUF}"))
    if len(names) > 1:
        raise ModelError(f"{folder} holds {len(names)} GGUF files: pass the one to load, such as {folder / names[0]}")
    return next(iter(names), "")


def check_gguf(path: Path) -> None:
    """Raise an error unless a file begins as GGUF does, and the package that reads it is installed."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ModelError(f"{path} is not a GGUF file: download it again")
    for package in ("gguf", "accelerate"):
        if find_spec(package) is None:
            raise MissingExtra(package, "gguf")


def quantisation(path: Path) -> str:
    """How most weights of a file are stored, such as Q4_1 or F16."""
    import gguf

    field = _reader(path).get_field("general.file_type")
    if field is None:
        return "unknown type"
    name: str = gguf.LlamaFileType(field.contents()).name
    return name.removeprefix("MOSTLY_").removeprefix("ALL_")


def _reader(path: str | Path) -> Any:
    """gguf's reader over a plain array: slices of numpy's memmap take three times as long."""
    from gguf.gguf_reader import GGUFReader

    class Reader(GGUFReader):  # type: ignore[misc]
        data = property(lambda self: self.plain, lambda self, mapped: setattr(self, "plain", mapped.view(np.ndarray)))

    try:
        return Reader(path)
    except (ValueError, IndexError) as e:
        raise _damaged(path, e) from None


def _damaged(path: str | Path, error: Exception) -> ModelError:
    return ModelError(f"{path} is cut off or damaged: download it again ({error})")


@contextmanager
def reading_gguf(file: str) -> Iterator[None]:
    """Let transformers parse a GGUF file once, not three times (27 s for Gemma 3), and without its progress bar.

    It also builds gguf's map of tensor names once, not for each of the model's modules (a third of the time).
    """
    if not file or find_spec("gguf") is None:
        yield
        return
    import gguf
    from transformers import modeling_gguf_pytorch_utils as theirs

    once = {"GGUFReader": lru_cache(_reader), "get_tensor_name_map": lru_cache(gguf.get_tensor_name_map)}
    with (
        patch.multiple(gguf, **once),
        patch.object(theirs, "tqdm", lambda tensors, **_: tensors),
    ):
        try:
            yield
        except struct.error as e:  # from transformers' own reader
            raise _damaged(file, e) from None


def dequantised(model: Any) -> None:
    """Make a model that was read from GGUF an ordinary one, which can be saved."""
    vars(model.config).pop("quantization_config", None)  # which transformers sets since 5.17
    model.hf_quantizer = None
