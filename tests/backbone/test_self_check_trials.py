from collections.abc import Callable

import pytest
import torch
from tests.families import batch_of, texts
from tests.tiny import tiny_model, tiny_tokenizer
from torch import Tensor, nn

from afterword.backbone.attention_taps import Matrices
from afterword.backbone.self_check import AFAR, CountingFromAfar, Reached, check, short_windows, stop_before
from afterword.text.tokenizer import Tokenizer

N = 37
X = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))

POSITIONS: dict[str, Callable[[], Tensor]] = {
    "scaled": lambda: X * torch.log1p(torch.floor((torch.arange(N).float() + 1) / 8192))[:, None],
    "compared": lambda: X * (torch.arange(N) < 5000)[:, None],
    "counted by a sum": lambda: X * (torch.ones(1, N, dtype=torch.long).cumsum(-1)[0] - 1 > 5000)[:, None],
    "in floating point": lambda: X * torch.arange(N, dtype=torch.float32)[:, None],
    "in place": lambda: X.clone().mul_(torch.arange(N)[:, None]),
    "after other whole numbers": lambda: X * ((torch.arange(N) // 8192) * 2 + 1).float()[:, None],
}
PLACES: dict[str, Callable[[], Tensor]] = {
    "an index": lambda: X[torch.arange(N)],
    "an index of rows and columns": lambda: X[torch.arange(N)[:, None], torch.arange(4)],
    "gathered": lambda: X.gather(0, torch.arange(N)[:, None].expand(N, 4)),
    "written to": lambda: torch.zeros(N, 4).index_add_(0, torch.arange(N).flip(0), X),
    "set": lambda: (y := torch.zeros(N, 4)).__setitem__(torch.arange(N), X) or y,
    "distances": lambda: (torch.arange(N)[:, None] - torch.arange(N)[None] <= 3).float() @ X,
    "of another length": lambda: X * torch.arange(4).float(),
    "starting elsewhere in steps": lambda: X * torch.arange(0, 2 * N, 2).float()[:, None],
}


@pytest.mark.parametrize("how", POSITIONS)
def test_a_position_counted_along_the_stream_shows(how: str):
    with CountingFromAfar(N):
        moved = POSITIONS[how]()
    assert not torch.equal(moved, POSITIONS[how]())


@pytest.mark.parametrize("how", PLACES)
def test_a_place_in_a_tensor_does_not(how: str):
    with CountingFromAfar(N):
        moved = PLACES[how]()
    assert type(moved) is Tensor and torch.equal(moved, PLACES[how]())


def test_what_counts_is_moved_beyond_every_threshold():
    with CountingFromAfar(5):
        assert torch.arange(5).float().tolist() == [AFAR + i for i in range(5)]
        assert torch.arange(5).shape == (5,) and torch.arange(5).tolist() == [0, 1, 2, 3, 4]


def test_a_forward_is_stopped_and_runs_again():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    seen: list[int] = []
    model[0].register_forward_hook(lambda *_: seen.append(0))
    model[1].register_forward_hook(lambda *_: seen.append(1))
    with pytest.raises(Reached), stop_before(model[1]):
        model(torch.ones(1, 2))
    model(torch.ones(1, 2))
    assert seen == [0, 0, 1]


def test_windows_are_shortened_and_put_back():
    model = tiny_model("mistral", sliding_window=4096)
    with short_windows(model, 512) as names:
        assert names == ["sliding_window"] and model.config.sliding_window == 5  # type: ignore[union-attr]
    assert model.config.sliding_window == 4096  # type: ignore[union-attr]
    with short_windows(tiny_model("mistral"), 512) as names:
        assert names == []


def test_matrices_are_eagers():
    model = tiny_model("llama")
    model.set_attn_implementation("afterword")  # type: ignore[operator]
    backbone, tap = check(model, Tokenizer(tiny_tokenizer())), Matrices()
    with torch.no_grad():
        backbone.forward(batch_of(texts()[:1]), taps=[tap])
        model.set_attn_implementation("eager")  # type: ignore[operator]
        wanted = model(input_ids=torch.tensor(texts()[:1]), output_attentions=True).attentions
    torch.testing.assert_close(torch.stack(tap.matrices), torch.stack(wanted), rtol=1e-5, atol=1e-6)
    assert tap.result(0).shape == (1, 3, 4, 5, 5)
