"""SCSP against its formula in float64, on the matrices that the model's own eager attention gives."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.eager import loaded
from tests.examples import examples
from tests.judge import EXACT, difference

from afterword import Encoder
from afterword.errors import MethodError
from afterword.methods import scsp

BEHIND = " Brief: “"
TEMPLATE = f"{{text}}{BEHIND}"
ids = st.lists(st.integers(8, 260), min_size=1, max_size=16)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scsp")


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2"])
@examples(8)
@given(texts=st.lists(ids, min_size=1, max_size=3), alpha=st.floats(0, 4))
def test_the_mean_of_what_the_prompt_attends_to(models: Path, kind: str, texts: list[list[int]], alpha: float) -> None:
    """In mistral a window of 6 tokens hides the text from the end of the prompt: all are kept."""
    eager, own = loaded(models, kind)
    wanted = []
    for text in texts:
        seen = eager.see(text, around=("", BEHIND))
        rows = seen.attention[:, :, seen.length - 1, seen.at.start : seen.at.stop].flatten(0, 1)
        s = (rows / rows.sum(-1, keepdim=True)).nan_to_num(0).amax(0) * len(text)
        assume(((s - alpha).abs() > 1e-4).all())
        kept = s > alpha if (s > alpha).any() else s >= 0
        wanted.append(seen.states[-3][seen.at.start : seen.at.stop][kept].mean(0).numpy())
    encoder = Encoder(own, scsp(alpha, template=TEMPLATE))
    got = encoder.encode(texts)
    assert difference(got, np.stack(wanted)) < EXACT
    assert (got[-1] == encoder.encode([texts[-1]])[0]).all(), "alone and in a batch"


def test_a_high_alpha_keeps_all_and_words_are_refused(models: Path) -> None:
    _, own = loaded(models, "llama")
    every, none = (Encoder(own, scsp(alpha, template=TEMPLATE)).weights([9, 10, 11])[1] for alpha in (0, 100))
    assert (every == none).all() and np.count_nonzero(every) == 3
    with pytest.raises(MethodError, match="word vectors"):
        Encoder(own, scsp()).encode_words(["a b"], ["b"])
