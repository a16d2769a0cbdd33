"""The model that the package ships: it loads without a network, quietly, and it has learned something."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

FOLDER = Path(__file__).parents[1] / "src" / "afterword" / "models" / "afterword-mini"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER.name} is not built: recipes/pretrain_mini.py")


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(FOLDER)


def test_its_files_are_small_and_tell_what_they_are():
    config = json.loads((FOLDER / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"] and config["dtype"] == "float16"
    assert config["head_dim"] != 8
    assert (FOLDER / "model.safetensors").stat().st_size <= 12_600_000
    card = (FOLDER / "README.md").read_text()
    assert "CC BY-SA" in card and "pretrain_mini.py" in card


def test_common_characters_are_single_tokens_and_bos_comes_first(tokenizer):
    ids = tokenizer("我们今天吃什么").input_ids
    assert len(ids) == 8 and ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == "我们今天吃什么"


@pytest.mark.parametrize(
    "text", ["The city is the capital of the province and has a large population.", "中国是世界上人口最多的国家之一。"]
)
def test_it_prefers_sentences_to_their_words_in_disorder(model, tokenizer, text: str):
    ids = tokenizer(text, return_tensors="pt").input_ids
    order = torch.randperm(ids.shape[1] - 1, generator=torch.Generator().manual_seed(1)) + 1
    shuffled = torch.cat([ids[:, :1], ids[:, order]], 1)
    with torch.inference_mode():
        right, wrong = (model(input_ids=row, labels=row).loss.item() for row in (ids, shuffled))
    assert right < wrong - 0.5
