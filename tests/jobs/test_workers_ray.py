"""What runs on Ray, here in this process: how attempts are counted."""

from afterword.jobs.workers_ray import GONE, Attempts


def test_attempts_are_counted_with_their_reasons():
    attempts = Attempts()
    assert attempts.begin(1) == []
    attempts.died(1, "raised")
    assert list(attempts.begin(1)) == ["raised"]
    assert list(attempts.begin(1)) == ["raised", GONE] and attempts.begin(2) == []
    assert (attempts.start(), attempts.start()) == (1, 2)
    attempts.ready()
    assert attempts.start() == 1
