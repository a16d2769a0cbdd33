"""A pytest plugin that says what each file and test takes of the processor, its child processes with it.

make test ARGS="-p tests.cpu"
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

SHOWN = 100


class Counts:
    """CPU seconds of xdist's workers, or of this process, and of the children that they have waited for."""

    def __init__(self) -> None:
        self.tests, self.files, self.children = Counter[str](), Counter[str](), Counter[str]()
        self.imports = sum(spent())
        """Before the first file, in all workers."""

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

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            counted = [self.tests, self.files, self.children]
            session.config.workeroutput["cpu"] = [self.imports, *map(dict, counted)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        imports, *found = getattr(node, "workeroutput", {}).get("cpu", [0.0])
        self.imports += imports
        for mine, theirs in zip((self.tests, self.files, self.children), found, strict=False):
            mine.update(theirs)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("CPU seconds")
        write(f"{self.imports:8.1f}  before the first file")
        write(f"{sum(self.files.values()):8.1f}  files, of which {sum(self.children.values()):.1f} in child processes")
        write("\nby file, and in child processes")
        for name, seconds in self.files.most_common():
            write(f"{seconds:8.1f}{self.children[name]:8.1f}  {name}")
        write(f"\nby test, the first {SHOWN}")
        for name, seconds in self.tests.most_common(SHOWN):
            write(f"{seconds:8.1f}  {name}")


def spent() -> tuple[float, float]:
    """CPU seconds of this process, and of its children."""
    found = os.times()
    return found.user + found.system, found.children_user + found.children_system


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Counts(), "cpu")
