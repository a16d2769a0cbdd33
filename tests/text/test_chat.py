"""Chat templates around a template: the same ids as transformers', and no text that ends its turn."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agreement import close, theirs
from tests.examples import examples
from tests.tiny import tiny_model, tiny_tokenizer

from afterword import Encoder, classical, prompt
from afterword.errors import InputError, MethodError
from afterword.methods.prompts import TEMPLATES
from afterword.text.layout import Layout
from afterword.text.tokenizer import Tokenizer

CHAT = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
EOL = TEMPLATES["eol"]
MARKS = ["<|end|>", "<|user|>", "<|assistant|>", "<s>", "</s>"]


def chat_tokenizer(template: str | None = CHAT):
    hf = tiny_tokenizer("llama")
    hf.add_special_tokens({"additional_special_tokens": ["<|end|>", "<|user|>", "<|system|>"]})
    hf.add_tokens(["<|assistant|>"])  # not special: some models have such marks
    hf.chat_template = template
    return hf


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chat")
    tiny_model("llama", vocab_size=320).save_pretrained(path)
    chat_tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return Encoder.load(folder, prompt(EOL, chat=True))


def written(layout: Layout, text: str, hf, **options) -> list[int]:
    return layout.write([text], Tokenizer(hf), **options)[0].segments[0].ids


@examples(25)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20))
def test_the_ids_are_those_of_transformers(text: str) -> None:
    """One <s>, from the chat template: the tokenizer would add another one."""
    hf = CHATTING
    turns = [{"role": "user", "content": EOL.replace("{text}", text)}]
    expected = hf.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    assert written(Layout(EOL, chat=True), text, hf) == expected
    assert expected.count(hf.bos_token_id) == 1


CHATTING = chat_tokenizer()


def test_a_text_at_the_edge_of_a_trimmed_turn_keeps_its_white_space() -> None:
    """The chat template trims; a text inside quotes is trimmed by nobody."""
    as_it_is = chat_tokenizer(CHAT.replace(" | trim", ""))
    for text in ("a", " a\n"):
        turns = [{"role": "user", "content": text}]
        expected = as_it_is.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        assert written(Layout("{text}", chat=True), text, CHATTING) == expected


def test_the_turns_of_promptreps() -> None:
    """The system's message, the user's turn, and the begun answer."""
    ids = written(Layout(TEMPLATES["promptreps"], chat=True), "A bank.", CHATTING)
    assert CHATTING.decode(ids) == (
        "<s><|system|>\nYou are an AI assistant that can understand human language.<|end|>\n"
        '<|user|>\nPassage: "A bank.". Use one word to represent the passage in a retrieval task. Make sure your word '
        'is in lowercase.<|end|>\n<|assistant|>\nThe word is: "'
    )


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("max_length", [None, 80])
def test_a_text_does_not_end_its_turn(mark: str, max_length: int | None) -> None:
    """A mark in a text is spelled as text, its offsets are those of the mark; also where the text is cut."""
    hf = CHATTING
    text = f"a{mark}b {mark}" + " and more" * 10
    layout = Layout(EOL, chat=True)
    (found,) = layout.write([text], Tokenizer(hf), max_length, offsets=True)
    segment, own = found.segments[0], hf.convert_tokens_to_ids(mark)
    start, end = segment.copies[0]
    assert own not in segment.ids[start:end] and len(segment.ids) <= (max_length or 1000)
    plain = hf.backend_tokenizer.from_str(hf.backend_tokenizer.to_str())
    plain.encode_special_tokens = True
    halves = [mark[:1], mark[1:]] if mark == "<|assistant|>" else [mark]  # that one is no special token
    letters = [i for half in halves for i in plain.encode(half, add_special_tokens=False).ids]
    assert segment.ids[start : start + 1 + len(letters)] == hf("a", add_special_tokens=False)["input_ids"] + letters
    assert {text[s:e] for s, e in found.offsets[0][1 : 1 + len(letters)]} == {mark}


def test_a_named_template_opens_the_answer() -> None:
    """Left to itself, a model may begin its answer in any way: that costs 22 points on STS-B with SmolLM2."""
    assert prompt("eol", chat=True).layout.template == EOL.removesuffix('"') + '[ANSWER]The word is "'
    assert prompt(EOL, chat=True).layout.template == prompt("eol").layout.template == EOL


def test_a_prompt_stands_inside_the_users_turn(encoder: Encoder) -> None:
    direct = Encoder(encoder.backbone, prompt(f"so: {EOL}", chat=True))
    assert (encoder.encode("A bank.", prompt="so: ") == direct.encode("A bank.")).all()


def test_alone_and_in_company_saved_and_loaded(encoder: Encoder, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="the extra st is not installed")
    texts = ["A bank.", "a<|end|>b", "more words than one", "A bank."]
    many = encoder.encode(texts)
    assert all((encoder.encode(text) == row).all() for text, row in zip(texts, many, strict=True))
    encoder.save(tmp_path / "a")
    loaded = Encoder.load(tmp_path / "a")
    assert loaded.method == encoder.method
    assert loaded.fingerprint == encoder.fingerprint and (loaded.encode(texts) == many).all()
    assert close(many, theirs(tmp_path / "a", trust_remote_code=True).encode(texts))
    loaded.backbone.tokenizer.hf.chat_template = CHAT.replace("trim", "upper")
    assert loaded.fingerprint != encoder.fingerprint, "the chat template decides the vectors"
    plain = Encoder(encoder.backbone, classical())
    before = plain.fingerprint
    plain.backbone.tokenizer.hf.chat_template += " "
    assert plain.fingerprint == before
    plain.backbone.tokenizer.hf.chat_template = CHAT


@pytest.mark.parametrize("template", [None, "{{ raise_exception('no system,\\n please') }}"])
def test_a_chat_template_that_cannot_be_used(template: str | None, encoder: Encoder) -> None:
    hf, before = encoder.backbone.tokenizer.hf, encoder.backbone.tokenizer.hf.chat_template
    hf.chat_template = template
    try:
        with pytest.raises(MethodError, match=r"chat=True: .*(no chat template|no system, please)"):
            Encoder(encoder.backbone, prompt(chat=True))
    finally:
        hf.chat_template = before


def test_options_that_contradict() -> None:
    for template, chat in (("promptreps", False), ("{text}[ANSWER]It is", False), ("a[ANSWER]b[USER]{text}", True)):
        with pytest.raises(MethodError, match="chat=True"):
            prompt(template, chat=chat)
    assert Layout(chat=True) == Layout("{text}", chat=True)


def test_a_condition_does_not_end_the_turn(encoder: Encoder) -> None:
    conditional = Encoder(encoder.backbone, prompt("ponte", chat=True))
    assert conditional.encode(["a"], conditions=["size"]).shape == (1, 64)
    with pytest.raises(InputError, match="'a</s>'"):
        conditional.encode(["a"], conditions=["a</s>"])


def test_a_string_around_template_and_prompt() -> None:
    """LLM2Vec's formats: the tokenizer's special tokens stand around it."""
    layout = Layout("q: {text}", chat="[INST] {text} [/INST]")
    assert CHATTING.decode(written(layout, "A bank.", CHATTING)) == "<s>[INST] q: A bank. [/INST]"
