"""A tiny model for jobs."""

from pathlib import Path

import pytest
from tests.cli.conftest import gpt2, run  # noqa: F401  # fixtures
from tests.tiny import tiny


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("llama", tmp_path_factory.mktemp("jobs") / "llama")
