from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from torch import nn

from afterword.backbone.model_lock import lock_of


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(), nn.Dropout()))


def in_training(parent: nn.Module) -> list[nn.Module]:
    return [module for module in parent.modules() if module.training]


def test_a_model_runs_in_eval_mode_and_every_module_gets_its_own_mode_back():
    made = model()
    made.eval()
    made[1][0].train()
    with lock_of(made).running(made):
        assert not in_training(made)
    assert in_training(made) == [made[1][0]]
    made.train()
    with lock_of(made).running(made), lock_of(made).running(made):
        assert not in_training(made)
    assert len(in_training(made)) == 5
    with pytest.raises(KeyboardInterrupt), lock_of(made).running(made):
        raise KeyboardInterrupt
    assert len(in_training(made)) == 5
    with lock_of(made).running(made, keep_mode=True):
        assert len(in_training(made)) == 5


def test_threads_run_together_and_the_last_one_restores_train_mode():
    made, together = model().train(), Barrier(4)
    assert lock_of(made) is lock_of(made) is not lock_of(model())

    def encode(_: int) -> int:
        with lock_of(made).running(made):
            together.wait(5)  # all four are inside
            return len(in_training(made))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(encode, range(4))) == [0] * 4
    assert len(in_training(made)) == 5
