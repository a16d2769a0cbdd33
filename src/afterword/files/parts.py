"""The parts of an encoder that are saved and loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from ..backbone.backbone import Backbone
from ..methods import AnyMethod
from ..post import Post, width_after


@dataclass(repr=False)
class Parts:
    """The model, method, post-processing steps and settings of an encoder; `Encoder` documents each."""

    backbone: Backbone
    method: AnyMethod
    post: tuple[Post, ...] = ()
    max_length: int | None = None
    prompts: dict[str, str] | None = None
    default_prompt_name: str | None = None
    similarity_fn_name: str = "cosine"

    def __repr__(self) -> str:
        """The model, the method and D, in one line."""
        path = PurePath(str(self.backbone.model.name_or_path))
        name = path.parent.name if path.name == "model" else path.name
        return f"{type(self).__name__}({name or self.backbone.facts.kind}, {self.method}, {self.dimension})"

    @property
    def dimension(self) -> int:
        """D, the number of components of a vector."""
        return width_after(self.method.width(self.backbone), self.post)

    @property
    def revision(self) -> str | None:
        """The commit on the Hub that the model was loaded from, if it is known."""
        return getattr(self.backbone.model.config, "_commit_hash", None)
