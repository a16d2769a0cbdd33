"""Jobs that embed in one process do not change each other's number of threads."""

from threading import Event, Thread

import torch

from afterword.jobs.torch_threads import torch_threads


def test_one_waits_for_the_other_and_all_have_their_own_number_again() -> None:
    before, inside, found = torch.get_num_threads(), Event(), list[tuple[str, int]]()

    def other() -> None:
        inside.set()
        with torch_threads(before + 2):
            found.append(("other", torch.get_num_threads()))

    thread = Thread(target=other)
    with torch_threads(before + 1):
        thread.start()
        inside.wait()
        thread.join(0.3)
        assert thread.is_alive() and not found, "it waits"
        with torch_threads(None):
            found.append(("one", torch.get_num_threads()))
    thread.join()
    assert found == [("one", before + 1), ("other", before + 2)] and torch.get_num_threads() == before
