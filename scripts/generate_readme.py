"""Write the console blocks of README.md from what their commands print.

python scripts/generate_readme.py                      (--check: only say whether they are up to date)
python scripts/generate_readme.py --check COMMAND...   the same with another `afterword`, such as `venv/bin/afterword`

A line "..." in a block stands for any lines. Numbers may differ by one in their last digit, as they do from processor
to processor. Commands run in an empty folder that has examples/ in it, one after the other.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "README.md"
BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", flags=re.S | re.M)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", flags=re.M)
NUMBER = re.compile(r"(-?\d+\.\d+)")
SETTINGS = {"COLUMNS": "100", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "NO_COLOR": "1"}
Run = Callable[[list[str]], str]


def here(arguments: list[str]) -> str:
    """What `afterword` prints, on both streams, run in this process."""
    from afterword.cli import main

    stream = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with redirect_stdout(stream), redirect_stderr(stream):
        code = main(arguments)
    text = stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
    if code:
        raise SystemExit(f"afterword {shlex.join(arguments)} ended with {code}:\n{text}")
    return text


def apart(command: Sequence[str]) -> Run:
    """The same by a command of its own, each call a new process."""

    def run(arguments: list[str]) -> str:
        done = subprocess.run(
            [*command, *arguments], env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            raise SystemExit(f"afterword {shlex.join(arguments)} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    return run


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a block as it is typed, and the lines that are shown under it.

    >>> list(commands("$ afterword methods | x\\n1\\n$ afterword a \\\\\\n  b\\n"))
    [('afterword methods | x', '1\\n'), ('afterword a \\\\\\n  b', '')]
    """
    return (found.groups() for found in COMMAND.finditer(block))  # type: ignore[misc]


def printed(command: str, run: Run) -> str:
    """What a command of the page prints, without spaces at the ends of lines."""
    program, *arguments = shlex.split(command.replace("\\\n", " "))
    if program != "afterword":
        raise SystemExit(f"the page shows what {program!r} prints: only afterword's commands are run")
    return "".join(line.rstrip() + "\n" for line in run(arguments).splitlines())


def shortened(text: str, shown: str) -> str:
    """A text with lines left out where the page left some out before.

    What the page shows before the first "..." is the text's beginning, what it shows after the last one its end; lines
    between two of them are found by the first word of the first.

    >>> shortened("1\\n2\\n3\\n4 b\\n5\\n6\\n", "0\\n...\\n4 a\\n...\\n9\\n")
    '1\\n...\\n4 b\\n...\\n6\\n'
    """
    head, *middle = [part.splitlines() for part in f"{shown}\n".split("...\n")]
    if not middle:
        return text
    lines, tail = text.splitlines(), middle.pop()[:-1]
    kept, at = lines[: len(head)], len(head)
    for part in middle:
        at = next((i for i in range(at, len(lines)) if lines[i].split()[:1] == part[0].split()[:1]), at)
        kept += ["...", *lines[at : at + len(part)]]
        at += len(part)
    return "\n".join([*kept, "...", *lines[len(lines) - len(tail) :]]) + "\n"


def alike(shown: str, text: str) -> bool:
    """Whether a page shows what is printed.

    >>> alike("a 0.120\\n...\\nb\\n", "a 0.121\\nx\\nb\\n"), alike("a 0.120\\n", "a 0.123\\n")
    (True, False)
    """
    left, right = NUMBER.split(shown), NUMBER.split(shortened(text, shown))
    return len(left) == len(right) and all(
        a == b if i % 2 == 0 else abs(float(a) - float(b)) < 1.5 * 10 ** -len(a.split(".")[1])
        for i, (a, b) in enumerate(zip(left, right, strict=True))
    )


@contextmanager
def folder(settings: Mapping[str, str]) -> Iterator[Path]:
    """An empty folder with the examples in it, as the working directory, and settings of the environment."""
    before = {name: os.environ.get(name) for name in settings}
    with TemporaryDirectory() as made, chdir(made):
        Path("examples").symlink_to(ROOT / "examples")
        os.environ.update(settings)
        try:
            yield Path(made)
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def renewed(page: str, run: Run, chosen: Callable[[str], bool] = lambda command: True) -> str:
    """The page with what every chosen command prints now; a command whose output is alike stays as it is."""

    def block(found: re.Match[str]) -> str:
        parts = []
        for command, shown in commands(found[1]):
            text = printed(command, run) if chosen(command) else shown
            parts.append(f"$ {command}\n{shown if alike(shown, text) else shortened(text, shown)}")
        return "".join(parts)

    with folder(SETTINGS):
        return BLOCK.sub(block, page)


def difference(before: str, now: str) -> str:
    """The lines that differ."""
    import difflib

    return "\n".join(difflib.unified_diff(before.splitlines(), now.splitlines(), "README.md", "now", lineterm=""))


def main(arguments: list[str]) -> str | int:
    """Write the page, or compare it."""
    other = [argument for argument in arguments if argument != "--check"]
    before = PAGE.read_text("utf-8")
    now = renewed(before, apart(other) if other else here)
    if "--check" in arguments:
        return difference(before, now) or 0
    PAGE.write_text(now, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
