"""Representative words against the whole model's own logits."""

from pathlib import Path

import pytest
import torch
from tests.tiny import tiny, tiny_config, tiny_tokenizer
from transformers import AutoModelForCausalLM

from afterword import Encoder, bellm, classical, prompt
from afterword.backbone.loading import load_head
from afterword.errors import BadRow, DataError, InputError, MissingDataset, ModelError
from afterword.papers.measurement import sweep
from afterword.papers.words import most_frequent, read_counts, representative_words

TEXTS = ["the rain", "it is late", "a", "in the thin line", "zebra", "what", "no", "yes", "oh", "well"]


def whole(kind: str, folder: Path, **changes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny_config(kind, **changes)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.4)
    model.save_pretrained(folder)
    tiny_tokenizer(kind).save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", ["llama", "llama tied", "gpt2", "gpt_neox", "gemma2", "phi", "cohere", "opt"])
def test_the_head_is_the_models_own(kind: str, tmp_path: Path):
    name, _, tied = kind.partition(" ")
    model = whole(name, tmp_path, **({"tie_word_embeddings": True} if tied else {}))
    encoder = Encoder.load(tmp_path, classical())
    head, found = load_head(encoder.backbone), []
    for text, best in zip(TEXTS, sweep(encoder, TEXTS, lambda s: head(s).argmax(-1).tolist()), strict=True):
        ids = encoder.backbone.tokenizer.hf(text, return_tensors="pt").input_ids
        with torch.no_grad():
            assert best == model(input_ids=ids).logits[0].argmax(-1).tolist()
        found += best
    assert len(set(found)) > 2


def test_words_are_those_of_the_likeliest_tokens(tmp_path: Path):
    model = whole("llama", tmp_path)
    encoder = Encoder.load(tmp_path, prompt("bellm", "last"))
    hf = encoder.backbone.tokenizer.hf
    words = []
    for text in TEXTS:
        ids = hf(f'The representative word for sentence {text} is:"', return_tensors="pt").input_ids
        with torch.no_grad():
            best = int(model(input_ids=ids).logits[0, -1].argmax())
        spelled = hf.decode([best], skip_special_tokens=True)
        words.append(spelled.strip() if any(c.isalnum() for c in spelled) else "")
    assert list(representative_words(encoder, TEXTS, {}).words) == words
    assert len(set(words)) > 1


def test_a_tied_head_is_the_word_table_itself(tmp_path: Path):
    whole("gpt2", tmp_path)
    backbone = Encoder.load(tmp_path, classical()).backbone
    head = load_head(backbone)
    assert head.weight is backbone.model.get_input_embeddings().weight  # type: ignore[operator]


def test_shares_are_counted_by_hand(tmp_path: Path):
    whole("llama", tmp_path)
    encoder = Encoder.load(tmp_path, bellm(2))
    plain = representative_words(encoder, TEXTS, {"zzz": 1})
    words = [w for w in plain.words if w]
    assert words and plain.share == len(words) / 10 and plain.frequent == 0
    assert plain.wordless == pytest.approx(1 - len(words) / 10) and plain.different == len(set(words))
    first = words[0]
    again = representative_words(encoder, TEXTS, {first.upper(): 5, "zzz": 9}, top=2)
    hits = sum(w.casefold() == first.casefold() for w in words)
    assert again.frequent == hits / 10 and again.share == pytest.approx((len(words) - hits) / 10)
    assert representative_words(encoder, TEXTS, {first: 5, "zzz": 9}, top=1).frequent == 0
    assert dict(plain.commonest)[first] == words.count(first)


def test_a_model_saved_without_its_head_takes_anothers(tmp_path: Path):
    whole("llama", tmp_path / "whole")
    encoder = Encoder.load(tmp_path / "whole", prompt("bellm", "last"))
    encoder.save(tmp_path / "saved")
    bare = Encoder.load(tmp_path / "saved")
    with pytest.raises(ModelError, match="saved was saved without its language-model head: name the model"):
        representative_words(bare, TEXTS, {})
    assert representative_words(bare, TEXTS, {}, head=str(tmp_path / "whole")).words == (
        representative_words(encoder, TEXTS, {}).words
    )


def test_what_has_no_head(tmp_path: Path):
    bert = Encoder.load(tiny("bert", tmp_path / "bert"), classical())
    with pytest.raises(ModelError, match="bert is bidirectional: it has no language-model head"):
        representative_words(bert, TEXTS, {})
    whole("llama", tmp_path / "narrow", hidden_size=32, head_dim=8)
    llama = Encoder.load(tiny("llama", tmp_path / "llama"), classical())
    with pytest.raises(ModelError, match="reads 32 components, the model gives 64"):
        representative_words(llama, TEXTS, {}, head=str(tmp_path / "narrow"))
    with pytest.raises(InputError, match="there is no text"):
        representative_words(Encoder.load(tmp_path / "narrow", classical()), [], {})


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "words.txt").write_text(text, encoding="utf-8")
    return tmp_path / "words.txt"


def test_a_corpus_is_counted(tmp_path: Path):
    found = read_counts(written(tmp_path, "It rains; it rained — don't go.\n\nÉcole 2024 IT\n"))
    assert found == {"it": 3, "rains": 1, "rained": 1, "don't": 1, "go": 1, "école": 1, "2024": 1}


def test_a_list_of_counts_is_read(tmp_path: Path):
    assert read_counts(written(tmp_path, "the 10\nThe\t5\n\nit 7\n")) == {"the": 15, "it": 7}


def test_the_most_frequent_and_ties():
    assert most_frequent({"a": 1, "b": 3, "c": 3, "d": 1}, 3) == {"b", "c", "a"}


def test_what_is_wrong_is_named(tmp_path: Path):
    with pytest.raises(BadRow, match=r"words\.txt:3: 'it seven' is not a word and its count"):
        read_counts(written(tmp_path, "the 10\n\nit seven\n"))
    with pytest.raises(DataError, match="holds no word"):
        read_counts(written(tmp_path, "...\n"))
    with pytest.raises(MissingDataset, match="does not exist"):
        read_counts(tmp_path / "none.txt")
    (tmp_path / "words.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="cannot be read as UTF-8"):
        read_counts(tmp_path / "words.txt")
