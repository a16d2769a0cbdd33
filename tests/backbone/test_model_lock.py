import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from torch import nn

from afterword.backbone.model_lock import ModelLock, lock_of

SOON = 5.0


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(), nn.Dropout()))


def in_training(whole: nn.Module) -> list[nn.Module]:
    return [module for module in whole.modules() if module.training]


def test_a_model_runs_in_eval_mode_and_every_module_gets_its_own_mode_back():
    whole = model()
    whole.eval()
    whole[1][0].train()
    with lock_of(whole).running(whole):
        assert not in_training(whole)
    assert in_training(whole) == [whole[1][0]]
    whole.train()
    with lock_of(whole).running(whole), lock_of(whole).running(whole):
        assert not in_training(whole)
    assert len(in_training(whole)) == 5
    with pytest.raises(ZeroDivisionError), lock_of(whole).running(whole):
        _ = 1 / 0
    assert len(in_training(whole)) == 5
    with lock_of(whole).running(whole, keep_mode=True):
        assert len(in_training(whole)) == 5


def test_one_model_has_one_lock_for_as_long_as_it_lives():
    one, other = model(), model()
    assert lock_of(one) is lock_of(one) is not lock_of(other)
    from afterword.backbone import model_lock

    before = len(model_lock._LOCKS)
    del one
    assert len(model_lock._LOCKS) == before - 1


class Log:
    """Who was inside together with whom."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.together: set[frozenset[str]] = set()
        self.lock = threading.Lock()

    def stay(self, kind: str) -> None:
        with self.lock:
            self.inside.append(kind)
        for _ in range(50):
            with self.lock:
                self.together.add(frozenset(self.inside))
        with self.lock:
            self.inside.remove(kind)


def test_encoding_training_and_checking_exclude_one_another():
    whole, lock, log = model().train(), ModelLock(), Log()

    def encode() -> None:
        with lock.running(whole):
            assert not in_training(whole)
            log.stay("encode")

    def train() -> None:
        with lock.running(whole, keep_mode=True):
            assert len(in_training(whole)) == 5
            log.stay("train")

    def check() -> None:
        with lock.exclusive(), lock.running(whole):
            log.stay("check")

    jobs: list[Callable[[], Any]] = [encode, train, check, encode, train] * 20
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result(SOON * 6)
    assert log.together == {frozenset({"encode"}), frozenset({"train"}), frozenset({"check"})}
    assert len(in_training(whole)) == 5


def test_who_waits_to_check_a_model_is_let_in_between_endless_encoders():
    whole, lock, stop = model(), ModelLock(), threading.Event()

    def encode() -> None:
        while not stop.is_set():
            with lock.running(whole):
                pass

    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            pool.submit(encode)
        try:
            entered = threading.Event()

            def check() -> None:
                with lock.exclusive():
                    entered.set()

            checked = threading.Thread(target=check)
            checked.start()
            assert entered.wait(SOON)
        finally:
            stop.set()


def test_an_interrupt_inside_leaves_the_lock_free():
    whole, lock = model().train(), ModelLock()
    with pytest.raises(KeyboardInterrupt), lock.running(whole):
        raise KeyboardInterrupt
    assert not lock._inside and not lock._waiting and len(in_training(whole)) == 5
