"""The impact matrix by perturbed masking: how much masking one token changes the hidden state of another.

Source: Wu et al. 2020; Ditto, section 2 (Figure 1, Table 3) and appendix A.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..encode.limits import Limits, each
from ..encoder import Encoder
from ..errors import InputError, MethodError, NoMaskToken
from ..methods import one_method
from ..text.batch import Batch
from ..text.inputs import check_texts
from ..text.layout import Layout, Text
from ..text.segments import Segment, TokenizedText
from .figure import printable
from .measurement import Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Impact(Measurement):
    """The impact matrix of a text.

    Attributes:
        tokens: the n tokens of the input.
        content: first and last index (half-open) of the text's own tokens; special tokens are never masked.
        matrix: F[i, j] (n, n), the Euclidean distance between two hidden states of token i: with i masked, and with i
            and j masked. The columns of special tokens, and the diagonal, are 0.
    """

    tokens: tuple[str, ...]
    content: tuple[int, int]
    matrix: NDArray[np.float64]

    @property
    def columns(self) -> NDArray[np.float64]:
        """The mean impact of each content token on the content tokens (N,): the column means, as in Table 3."""
        inside = slice(*self.content)
        return np.asarray(self.matrix[inside, inside].mean(0))


def impact(encoder: Encoder, text: Text, *, limits: Limits | None = None) -> Impact:
    """Compute the impact matrix of one text, from N (N + 1) / 2 masked copies for N content tokens.

    Args:
        encoder: an encoder whose model has a [MASK]; its method gives the states to compare, the last ones for
            `classical`.
        text: one string, or one list of token ids. A text longer than the model allows is an error: it is not
            truncated.
        limits: batch size.

    Raises:
        NoMaskToken: the model has no [MASK].
        MethodError: the method adds more than special tokens to the text, or has bidirectional layers.
        InputError: the text is too long, or has no token.
    """
    method, backbone = one_method(encoder.method, "an impact matrix"), encoder.backbone
    if method.layout != Layout(add_special_tokens=method.layout.add_special_tokens) or method.sight:
        raise MethodError(f"{method.name}: an impact matrix is that of the text alone; use classical")
    if backbone.tokenizer.hf.mask_token_id is None:
        raise NoMaskToken(f"{backbone.facts.kind} has no [MASK]: an impact matrix needs an encoder that knows one")
    segment = method.layout.write(check_texts([text]), backbone.tokenizer)[0].segments[0]
    start, end = segment.copies[0]
    n, longest = len(segment.ids), encoder.max_length
    if start == end or (longest is not None and n > longest):
        raise InputError(f"the text has {n} tokens with special ones, {end - start} without: give 1 to {longest}")
    states = _masked(encoder, segment, limits or Limits())
    matrix = np.zeros((n, n))
    for i in range(n):
        own = {i} & set(range(start, end))
        for j in range(start, end):
            matrix[i, j] = np.linalg.norm(states[frozenset(own)][i] - states[frozenset(own | {j})][i])
    return Impact(tuple(backbone.tokenizer.tokens(segment.ids)), (start, end), matrix)


Masked = frozenset[int]
"""The indices of the masked tokens."""


def _masked(encoder: Encoder, segment: Segment, limits: Limits) -> dict[Masked, dict[int, NDArray[np.float64]]]:
    """Hidden states (D,) with no content token masked, with each one, and with each two.

    The states of the masked tokens are kept, and those of the special tokens if fewer than two are masked.
    """
    method, backbone = one_method(encoder.method, "an impact matrix"), encoder.backbone
    content = range(*segment.copies[0])
    special = set(range(len(segment.ids))) - set(content)
    keys = [Masked(chosen) for size in range(3) for chosen in combinations(content, size)]
    written = [TokenizedText((_with_mask(segment, key, backbone.tokenizer.mask_id),)) for key in keys]
    result = {}

    def run(batch: Batch, _: list[int]) -> list[tuple[int, NDArray[np.float64]]]:
        states = method.states.mean(backbone.forward(batch, frozenset(method.states.layers)))
        (group,) = batch.groups  # all copies are equally long
        return list(zip(group.text.tolist(), group.slice(states).double().cpu().numpy(), strict=True))

    for indices, pairs in each(written, run, limits.budget(backbone.device), backbone.device):
        for t, states in pairs:
            key = keys[indices[t]]
            result[key] = {i: states[i] for i in (key if len(key) == 2 else key | special)}
    return result


def _with_mask(segment: Segment, masked: Masked, mask: int) -> Segment:
    ids = [mask if i in masked else token for i, token in enumerate(segment.ids)]
    return Segment(ids, segment.copies, segment.special)


def plot(axes: Axes, result: Impact) -> None:
    """Draw the content tokens' impact matrix, as in Figure 1 of Ditto, with the means of its columns above.

    The diagonal is 0 by definition and is left blank; the scale begins at the 2nd percentile of the rest.

    Args:
        axes: the axes to draw on.
        result: the result of `impact`.
    """
    inside = slice(*result.content)
    names = [printable(token, 24) for token in result.tokens[inside]]
    count = len(names)
    matrix = np.ma.masked_array(result.matrix[inside, inside], np.eye(count, dtype=bool))
    low = float(np.percentile(matrix.compressed(), 2, method="lower")) if count > 1 else 0.0
    image = axes.imshow(matrix, vmin=low)
    axes.set_xticks(range(count), names, rotation=90, fontsize=min(8.5, 300 / count))
    axes.set_yticks(range(count), names, fontsize=min(8.5, 300 / count))
    axes.grid(visible=False)
    axes.set(xlabel="masked token", ylabel="effect on")
    axes.get_figure(root=True).colorbar(image, ax=axes, label="Euclidean distance", shrink=0.7)  # type: ignore[union-attr]
    bars = axes.inset_axes((0, 1.03, 1, 0.15), sharex=axes)
    bars.bar(range(count), result.columns, 0.7)
    bars.tick_params(labelbottom=False)
    bars.set_ylabel("mean", fontsize=8)
