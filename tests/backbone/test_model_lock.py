import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from torch import nn

from afterword.backbone.model_lock import Gate, gate_of, in_training

SOON = 5.0


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(), nn.Dropout()))


def test_a_model_runs_in_eval_mode_and_every_module_gets_its_own_mode_back():
    whole = model()
    whole.eval()
    whole[1][0].train()
    with gate_of(whole).running(whole):
        assert not in_training(whole)
    assert in_training(whole) == [whole[1][0]]
    whole.train()
    with gate_of(whole).running(whole), gate_of(whole).running(whole):
        assert not in_training(whole)
    assert len(in_training(whole)) == 5
    with pytest.raises(ZeroDivisionError), gate_of(whole).running(whole):
        _ = 1 / 0
    assert len(in_training(whole)) == 5
    with gate_of(whole).running(whole, keep_mode=True):
        assert len(in_training(whole)) == 5


def test_one_model_has_one_gate_for_as_long_as_it_lives():
    one, other = model(), model()
    assert gate_of(one) is gate_of(one) is not gate_of(other)
    from afterword.backbone import model_lock as gate

    before = len(gate._GATES)
    del one
    assert len(gate._GATES) == before - 1


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
    whole, gate, log = model().train(), Gate(), Log()

    def encode() -> None:
        with gate.running(whole):
            assert not in_training(whole)
            log.stay("encode")

    def train() -> None:
        with gate.running(whole, keep_mode=True):
            assert len(in_training(whole)) == 5
            log.stay("train")

    def check() -> None:
        with gate.alone(), gate.running(whole):
            log.stay("check")

    jobs: list[Callable[[], Any]] = [encode, train, check, encode, train] * 20
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result(SOON * 6)
    assert log.together == {frozenset({"encode"}), frozenset({"train"}), frozenset({"check"})}
    assert len(in_training(whole)) == 5


def test_who_waits_to_check_a_model_is_let_in_between_endless_encoders():
    whole, gate, stop = model(), Gate(), threading.Event()

    def encode() -> None:
        while not stop.is_set():
            with gate.running(whole):
                pass

    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            pool.submit(encode)
        try:
            entered = threading.Event()

            def check() -> None:
                with gate.alone():
                    entered.set()

            checked = threading.Thread(target=check)
            checked.start()
            assert entered.wait(SOON)
        finally:
            stop.set()


def test_an_interrupt_inside_leaves_the_gate_open():
    whole, gate = model().train(), Gate()
    with pytest.raises(KeyboardInterrupt), gate.running(whole):
        raise KeyboardInterrupt
    assert not gate._inside and not gate._waiting and len(in_training(whole)) == 5
