"""A pytest plugin that says what each file and test takes of the processor, its child processes with it.

make test ARGS="-p tests.cpu -n 0"    # in one process: others would count apart
"""

import os
from collections import Counter
from collections.abc import Iterator

import pytest

SHOWN = 150


class Counts:
    """CPU seconds of this process and of the children that it has waited for."""

    def __init__(self) -> None:
        self.tests, self.files, self.children = Counter[str](), Counter[str](), Counter[str]()
        self.start = spent()

    def add(self, file: str, test: str, before: tuple[float, float]) -> None:
        own, of_children = (now - then for now, then in zip(spent(), before, strict=True))
        self.tests[test] += own + of_children
        self.files[file] += own + of_children
        self.children[file] += of_children

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        before = spent()
        result = yield
        if isinstance(collector, pytest.Module):  # its import, and what it imports first
            self.add(collector.nodeid, f"import of {collector.nodeid}", before)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = spent()
        result = yield
        self.add(item.nodeid.split("::")[0], item.nodeid, before)
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("CPU seconds")
        write(f"{sum(self.start):8.1f}  before the first file; {sum(spent()):.1f} in all")
        for what, found in (("file", self.files), ("test", self.tests)):
            write(f"\nby {what}" + (", and in child processes" if what == "file" else ""))
            for name, seconds in found.most_common(SHOWN):
                apart = f"{self.children[name]:8.1f}" if what == "file" else ""
                write(f"{seconds:8.1f}{apart}  {name}")


def spent() -> tuple[float, float]:
    """CPU seconds of this process, and of its children."""
    found = os.times()
    return found.user + found.system, found.children_user + found.children_system


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Counts(), "cpu")
