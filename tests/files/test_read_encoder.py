from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.agreement import LONG, PROMPTS, TEXTS, agree, close, theirs
from tests.tiny import tiny

from afterword import Encoder, classical, reba
from afterword.errors import AfterwordError, ModelError
from afterword.post import Normalise

SentenceTransformer = pytest.importorskip(
    "sentence_transformers", reason="the extra st is not installed"
).SentenceTransformer


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for kind in ("bert", "gpt2"):
        tiny(kind, root / kind)
    return root


def test_minilm_through_both(minilm: Path, tmp_path: Path):
    ours, other = Encoder.load(minilm), theirs(minilm)
    assert ours.post == (Normalise(),) and ours.max_length == other.max_seq_length == 256
    texts = [*LONG, "many words " * 400]
    assert close(ours.encode(texts, on_long="ignore"), other.encode(texts))
    ours.save(tmp_path / "a")
    other.save(str(tmp_path / "b"), create_model_card=False)
    for folder in (tmp_path / "a", tmp_path / "b"):
        assert close(Encoder.load(folder).encode(texts, on_long="ignore"), other.encode(texts))
        assert close(theirs(folder).encode(texts), other.encode(texts))


def built(folder: Path, *more: object, mode: str = "mean", **options: object) -> SentenceTransformer:
    """A SentenceTransformer of stock modules, as that library builds it."""
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    first = Transformer(str(folder))
    return SentenceTransformer(
        modules=[first, Pooling(first.get_embedding_dimension(), mode), *more], device="cpu", **options
    )


@pytest.mark.parametrize("mode", ["mean", "cls", "lasttoken"])
def test_a_stock_folder_loads_with_all_its_settings(mode: str, models: Path, tmp_path: Path):
    from sentence_transformers.sentence_transformer.modules import Dense as TheirDense
    from sentence_transformers.sentence_transformer.modules import Normalize

    other = built(
        models / "bert", TheirDense(64, 32), Normalize(), TheirDense(32, 20, bias=False, activation_function=None),
        mode=mode, prompts=PROMPTS, default_prompt_name="other", similarity_fn_name="dot", truncate_dim=12,
    )  # fmt: skip
    other.max_seq_length = 24
    other.save(str(tmp_path / "a"), create_model_card=False)
    ours = Encoder.load(tmp_path / "a")
    assert (ours.default_prompt_name, ours.similarity_fn_name, ours.max_length) == ("other", "dot", 24)
    assert ours.prompts == PROMPTS and ours.dimension == 12
    assert agree(ours, other, LONG, 5e-6)
    a = ours.encode(TEXTS, on_long="ignore")
    assert np.allclose(ours.similarity(a, a), other.similarity(a, a).numpy(), atol=1e-5)


@pytest.mark.parametrize("prompts", [{"passage": "p: "}, {"corpus": "c: ", "query": ""}, {"document": "d: "}, {}])
def test_prompts_for_queries_and_documents_are_found_as_there(prompts: dict[str, str], models: Path, tmp_path: Path):
    other = built(models / "gpt2", prompts={"mine": "m: ", **prompts}, default_prompt_name="mine")
    other.tokenizer.pad_token = "</s>"
    other.save(str(tmp_path / "a"), create_model_card=False)
    assert agree(Encoder.load(tmp_path / "a"), other, TEXTS, 5e-6)


def test_the_prompt_for_documents_goes_by_several_names(models: Path, tmp_path: Path):
    encoder = replace(Encoder.load(models / "bert", classical()), prompts={"passage": "p: "})
    encoder.save(tmp_path / "a")
    loaded, other = Encoder.load(tmp_path / "a"), theirs(tmp_path / "a")
    assert not close(encoder.encode_document(TEXTS), encoder.encode(TEXTS))
    for vectors in (loaded.encode_document(TEXTS), other.encode_document(TEXTS)):
        assert close(vectors, encoder.encode_document(TEXTS), 5e-6)


@pytest.fixture
def own(models: Path, tmp_path: Path) -> Path:
    """A folder of our module that may be broken."""
    Encoder.load(models / "bert", reba()).save(tmp_path / "own")
    return tmp_path / "own"


def refused(folder: Path) -> str:
    """The one line that a folder is refused with."""
    with pytest.raises(AfterwordError) as e:
        Encoder.load(folder)
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 600
    return str(e.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"max_length": 3}', '{"method": {"method": "rebba"}}', '{"method": 3}'])
def test_a_broken_configuration_of_ours_is_said_in_one_line(text: str, own: Path):
    (own / "afterword.json").write_text(text)
    assert "afterword.json" in refused(own)
    with pytest.raises(ModelError, match=r"afterword\.json"):
        theirs(own, trust_remote_code=True)
