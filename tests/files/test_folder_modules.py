import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agreement import DENSE
from tests.tiny import tiny

from afterword import Encoder, classical
from afterword.errors import AfterwordError
from afterword.files.folder_modules import with_document_prompt
from afterword.post import Normalise


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for kind in ("bert", "gpt2"):
        tiny(kind, root / kind)
    return root


@pytest.fixture
def stock(models: Path, tmp_path: Path) -> Path:
    """A folder of stock modules that may be broken."""
    replace(Encoder.load(models / "bert", classical()), post=(DENSE, Normalise())).save(tmp_path / "stock")
    return tmp_path / "stock"


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
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "max"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pools by cls and mean"),
        ("1_Pooling/config.json", {"include_prompt": False, "pooling_mode": "weightedmean"}, "include_prompt"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
        ("sentence_bert_config.json", {"model_args": {"dtype": "auto", "num_labels": 3}}, "model_args.num_labels=3"),
        ("2_Dense/config.json", {"use_residual": True}, "use_residual"),
        ("2_Dense/config.json", {"activation_function": "mine.Tanh"}, "'mine.Tanh'"),
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


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (["sentence_transformers.models.Transformer"], "lists Transformer"),
        (["sentence_transformers.models.WordEmbeddings"], "WordEmbeddings"),
        (["custom_st.Transformer", "sentence_transformers.models.Pooling"], "custom_st.Transformer"),
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
    assert with_document_prompt(None) == {} == with_document_prompt({"query": "", "document": ""})
    assert with_document_prompt({"corpus": "c: ", "passage": "p: "})["document"] == "p: "
    assert with_document_prompt({"document": "", "passage": "p: "}) == {"passage": "p: "}
