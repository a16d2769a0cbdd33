"""What a user sees first: the names, and that looking at them costs nothing."""

import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import jaxtyping
import pytest
import torch

import afterword
from afterword.backbone.attention_taps import ScoreView
from afterword.shapes import States

NAMES = """
    AfterwordError Encoder Ensemble Method bellm classical ditto echo ensemble errors methods parse_method prompt reba
""".split()

HEAVY = tuple("torch transformers sentence_transformers tokenizers numpy peft datasets matplotlib rich pyarrow".split())

REPORT = f"""
import sys
print("HEAVY", *sorted(set({HEAVY}) & set(sys.modules)))
"""


def look(code: str) -> tuple[list[str], str]:
    """Run `code` in a fresh interpreter: heavy modules that it loaded, and what it printed."""
    done = subprocess.run([sys.executable, "-c", code + REPORT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *printed, heavy = done.stdout.splitlines()
    return heavy.split()[1:], "\n".join(printed)


def test_the_names_cost_no_import_of_heavy_libraries():
    assert sorted(set(afterword.__all__) - {"__version__"}) == sorted(NAMES)
    for name in afterword.__all__:
        assert getattr(afterword, name) is not None
    assert set(afterword.__all__) <= set(dir(afterword)) and afterword.__version__ == version("afterword")
    assert look("import afterword; dir(afterword); afterword.__version__\n")[0] == []


HELP = """
import sys, runpy
sys.argv = ["afterword", *{args}]
try:
    runpy.run_module("afterword", run_name="__main__")
except SystemExit as end:
    assert end.code in (0, None), end.code
"""


@pytest.mark.parametrize("args", [["--help"], ["embed", "--help"], ["methods", "--help"]], ids=" ".join)
def test_help_is_light(args: list[str]):
    heavy, printed = look(HELP.format(args=args))
    assert "Usage" in printed
    assert heavy == []


def test_the_command_is_installed():
    (command,) = entry_points(group="console_scripts", name="afterword")
    assert command.value == "afterword.__main__:main"
    done = subprocess.run(
        [Path(sys.executable).with_name("afterword"), "--help"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_shapes_are_checked_wherever_tensors_pass() -> None:
    assert isinstance(torch.zeros(3, 2), States) and not isinstance(torch.zeros(3), States)
    q, k = torch.zeros(2, 4, 5, 8), torch.zeros(2, 2, 6, 8)  # five queries, six keys
    with pytest.raises(jaxtyping.TypeCheckError):
        ScoreView(0, 0, True, q, k, 1.0)
