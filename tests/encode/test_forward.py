"""weights @ states."""

import torch
from tests.tiny import tiny

from afterword import classical, reba
from afterword.backbone.loading import load_backbone
from afterword.encode.sentences import combine, vectors, weights
from afterword.text.batch import lay
from afterword.text.segments import Segment, TokenizedText


def writing(n: int) -> TokenizedText:
    return TokenizedText((Segment(list(range(20, 20 + n)), ((0, n),)),), kept=n, total=n)


def test_the_one_law() -> None:
    """Two texts, the longer one first on the flat axis; a row of weights each."""
    batch = lay([writing(1), writing(2)])
    states = torch.tensor([[1.0, 0], [0, 1], [5, 5]])
    made = combine(batch, [torch.tensor([[[2.0, 3.0]]]), torch.tensor([[[4.0]]])], states)
    assert made[:, 0].tolist() == [[20, 20], [2, 3]]


def test_vectors_are_weights_times_states(tmp_path) -> None:
    own = load_backbone(tiny("llama", tmp_path))
    batch = lay(classical().layout.write(["abc", "de"], own.tokenizer))
    with torch.no_grad():
        (weighed,) = weights(own, [reba(1)], batch)
        (made,) = vectors(own, [reba(1)], batch)
    for group, rows in zip(batch.groups, weighed.weights, strict=True):
        for g, text in enumerate(group.text.tolist()):
            expected = rows[g, 0] @ group.slice(weighed.states)[g]
            assert torch.allclose(made[text, 0], expected, atol=1e-6)
