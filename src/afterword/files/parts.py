"""What an encoder is made of, and what is saved of it."""

from __future__ import annotations

from dataclasses import dataclass

from ..backbone.backbone import Backbone
from ..methods import Method
from ..post import Post, width_after


@dataclass
class Parts:
    """An encoder's model, method and steps, and its settings; see `Encoder` for each."""

    backbone: Backbone
    method: Method
    post: tuple[Post, ...] = ()
    max_length: int | None = None
    prompts: dict[str, str] | None = None
    default_prompt_name: str | None = None
    similarity_fn_name: str = "cosine"

    @property
    def dimension(self) -> int:
        """D, the width of a vector."""
        return width_after(self.method.states.width(self.backbone), self.post)

    @property
    def revision(self) -> str | None:
        """The hub's commit that the model came from, where that is known."""
        return getattr(self.backbone.model.config, "_commit_hash", None)
