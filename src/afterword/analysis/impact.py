"""The impact matrix by perturbed masking: how much masking one token changes what a model makes of another.

Source: Wu et al. 2020; Ditto, section 2 (Figure 1, Table 3) and appendix A.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ..encode.batches import each
from ..encode.limits import Limits
from ..encoder import Encoder
from ..errors import InputError, MethodError, NoMaskToken
from ..text.batch import Batch
from ..text.inputs import check_texts
from ..text.layout import Layout, Text
from ..text.segments import Segment, TokenizedText
from .result import Measurement


@dataclass(frozen=True)
class Impact(Measurement):
    """What tokens of one text do to each other.

    Attributes:
        tokens: n of them, as the model reads them.
        content: where the text's own begin and end; special tokens are never masked.
        matrix: F[i, j] (n, n), the Euclidean distance between the states of token i when i is masked and when i and j
            are; the columns of special tokens, and the diagonal, are 0.
    """

    tokens: tuple[str, ...]
    content: tuple[int, int]
    matrix: NDArray[np.float64]

    @property
    def columns(self) -> NDArray[np.float64]:
        """How much each content token matters to the content (N,): the mean of its column, as in Table 3."""
        inside = slice(*self.content)
        return np.asarray(self.matrix[inside, inside].mean(0))


def impact(encoder: Encoder, text: Text, *, limits: Limits | None = None) -> Impact:
    """The impact matrix of one text. It takes N (N + 1) / 2 masked copies of its N content tokens.

    Args:
        encoder: of a model with a [MASK]; its method says which states are compared, `classical` the last ones.
        text: one string, or one list of token ids. What is over the model's length is an error: nothing is cut.
        limits: how much at a time.

    Raises:
        NoMaskToken: the model has no [MASK].
        MethodError: the method writes more than the text and its special tokens, or lets layers see both ways.
        InputError: the text is too long, or holds no token.
    """
    method, backbone = encoder.method, encoder.backbone
    if method.layout != Layout(add_special_tokens=method.layout.add_special_tokens) or method.sight:
        raise MethodError(f"{method.name}: an impact matrix is that of the text alone; use classical")
    if backbone.tokenizer.hf.mask_token_id is None:
        raise NoMaskToken(f"{backbone.facts.kind} has no [MASK]: an impact matrix needs an encoder that knows one")
    segment = method.layout.write(check_texts([text]), backbone.tokenizer)[0].segments[0]
    start, end = segment.copies[0]
    n, longest = len(segment.ids), encoder.max_length
    if start == end or (longest is not None and n > longest):
        raise InputError(f"the text has {n} tokens with special ones, {end - start} without: give 1 to {longest}")
    found = _masked(encoder, segment, limits or Limits())
    matrix = np.zeros((n, n))
    for i in range(n):
        own = {i} & set(range(start, end))
        for j in range(start, end):
            matrix[i, j] = np.linalg.norm(found[frozenset(own)][i] - found[frozenset(own | {j})][i])
    return Impact(tuple(backbone.tokenizer.tokens(segment.ids)), (start, end), matrix)


Masked = frozenset[int]
"""Which tokens are masked."""


def _masked(encoder: Encoder, segment: Segment, limits: Limits) -> dict[Masked, dict[int, NDArray[np.float64]]]:
    """States (D,) of the text with none, each one and any two of its content tokens masked.

    Kept are those of the masked tokens, and of the special ones where not two are masked.
    """
    method, backbone = encoder.method, encoder.backbone
    content = range(*segment.copies[0])
    special = set(range(len(segment.ids))) - set(content)
    keys = [Masked(chosen) for size in range(3) for chosen in combinations(content, size)]
    written = [TokenizedText((_with_mask(segment, key, backbone.tokenizer.mask_id),)) for key in keys]
    found = {}

    def run(batch: Batch, _: list[int]) -> list[tuple[int, NDArray[np.float64]]]:
        states = method.states.mean(backbone.forward(batch, frozenset(method.states.layers)))
        (group,) = batch.groups  # all copies are equally long
        return list(zip(group.text.tolist(), group.slice(states).double().cpu().numpy(), strict=True))

    for indices, made in each(written, run, limits.budget(backbone.device), backbone.device):
        for t, one in made:
            key = keys[indices[t]]
            found[key] = {i: one[i] for i in (key if len(key) == 2 else key | special)}
    return found


def _with_mask(segment: Segment, masked: Masked, mask: int) -> Segment:
    ids = [mask if i in masked else token for i, token in enumerate(segment.ids)]
    return Segment(ids, segment.copies, segment.special)
