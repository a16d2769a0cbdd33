import pytest
from tests.tiny import tiny

from afterword import Encoder, reba
from afterword.backbone.loading import load_backbone


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory):
    return load_backbone(tiny("gpt2", tmp_path_factory.mktemp("run")))


def test_the_bar_counts_texts(own, capsys: pytest.CaptureFixture[str]) -> None:
    Encoder(own, reba()).encode(["a", "b", "c"], show_progress_bar=True)
    seen = capsys.readouterr()
    assert "3/3" in seen.err and not seen.out
