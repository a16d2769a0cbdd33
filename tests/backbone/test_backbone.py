import copy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import tiny as tiny_families
from tests.eager import Eager
from tests.families import batch_of, by_text, difference, texts
from tests.tiny import MASK, SHAPE, tiny, tiny_model, tiny_tokenizer
from torch import nn
from transformers import AutoConfig, AutoModel

from afterword import Encoder, classical
from afterword.backbone.attention import NAME
from afterword.backbone.attention_masks import PackedGroup
from afterword.backbone.backbone import Backbone, lock_of
from afterword.backbone.facts import LAST, TABLE
from afterword.backbone.loading import load_backbone
from afterword.backbone.self_check import check
from afterword.text.batch import Batch, lay
from afterword.text.layout import Layout
from afterword.text.tokenizer import Tokenizer


@pytest.mark.parametrize("kind", ["gpt2", "roberta", "albert", "t5", "bloom"])
def test_states_are_the_models_own_layer_by_layer(kind: str, tmp_path: Path):
    backbone, eager = load_backbone(tiny(kind, tmp_path)), Eager(tmp_path)
    batch = batch_of(texts())
    layers: frozenset[Any] = frozenset({LAST, TABLE, 0, 1, 2, 3, -2})
    with torch.no_grad():
        trace = backbone.forward(batch, layers)
    for i, ids in enumerate(texts()):
        with torch.no_grad():
            out = eager.model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        table = eager.model.get_input_embeddings().weight[ids]
        wanted = {
            **dict(enumerate(out.hidden_states)),
            -2: out.hidden_states[-2],
            LAST: out.last_hidden_state,
            TABLE: table,
        }
        for layer in layers:
            got = by_text(batch, trace.states[layer])[i]
            want = wanted[layer].reshape(got.shape)
            assert (got - want).abs().max() < 1e-5 * want.abs().max(), (kind, layer)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2", "opt", "gpt_neox", "qwen3", "bert"])
def test_normed_states_are_those_of_the_truncated_model(kind: str, tmp_path: Path):
    backbone, batch = load_backbone(tiny(kind, tmp_path)), batch_of(texts())
    kept = frozenset(f"normed:{t}" for t in range(4))
    with torch.no_grad():
        trace = backbone.forward(batch, kept)
    for t in range(4):
        config = AutoConfig.from_pretrained(tmp_path)
        config.num_hidden_layers = t
        if hasattr(config, "layer_types") and config.layer_types:
            config.layer_types = config.layer_types[:t]
        model = AutoModel.from_pretrained(tmp_path, config=config, attn_implementation="eager").eval()
        for i, ids in enumerate(texts()):
            with torch.no_grad():
                want = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
            got = by_text(batch, trace.states[f"normed:{t}"])[i]
            assert (got - want).abs().max() < 1e-5 * want.abs().max(), t
    assert (trace.states["normed:2"] - trace.states["normed:3"]).abs().max() > 0.1


WRITTEN = ["a dog", "dog", "two", "", "one day a man went out to look", "tall tales", "is it", [40, 41, 42], "the end"]
LAYOUT = Layout("In a word, {text}:")


def written(backbone: Backbone) -> Batch:
    """Texts in a template, one cut short; in front of two its blank and their "t" are one token."""
    return lay(LAYOUT.write(WRITTEN, backbone.tokenizer, max_length=35))


def runs_of(backbone: Backbone, batch: Batch, **options: Any) -> list[PackedGroup]:
    """How a batch is run."""
    backbone.observed = []
    backbone.forward(batch, **options)
    plans, backbone.observed = backbone.observed, None
    return [run for plan in plans for run in plan.groups]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "gemma2", "opt", "phi3", "gpt_oss", "llama dynamic"])
def test_a_shared_prefix_runs_once_and_changes_no_state(kind: str, tmp_path: Path):
    backbone, eager = load_backbone(tiny(kind, tmp_path)), Eager(tmp_path)
    batch = written(backbone)
    layers: frozenset[Any] = frozenset({LAST, TABLE, 1, "normed:2"})
    with torch.no_grad():
        assert batch.prefix > 10 and sum(g.with_prefix for g in batch.groups) == 7
        assert sum(bool(run.prefix) for run in runs_of(backbone, batch)) >= 5
        trace = backbone.forward(batch, layers)
        backbone.facts = replace(backbone.facts, shares=False)
        whole = backbone.forward(batch, layers)
    for layer in layers:
        a, b = trace.states[layer], whole.states[layer]
        assert a.shape == b.shape and (a - b).abs().max() <= 1e-5 * b.abs().max(), layer
    for group in batch.groups:
        for ids, got in zip(group.tokens, group.slice(trace.states[LAST]), strict=True):
            with torch.no_grad():
                want = copy.deepcopy(eager.model)(input_ids=ids[None]).last_hidden_state[0]
            assert (got - want).abs().max() < 1e-5 * want.abs().max()


PROBE = """
import sys, torch
from tests.tiny import tiny
from afterword import Encoder, reba
from afterword.backbone.loading import load_backbone
from tests.eager import Eager
torch.set_num_threads(1)
bound, folder = int(sys.argv[1]), sys.argv[2]
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) // 1024
ids = [[9 + i % 200 for i in range(256)]]
def least(run, rounds=3):
    run(64)
    grown = []
    for _ in range(rounds):  # what other pages come and go only adds
        open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
        before = peak()
        run(512)
        grown.append(peak() - before)
        if grown[-1] < bound:
            break
    return min(grown)
def probe(folder):
    backbone = load_backbone(folder)
    for pool in ("last", "mean"):
        encoder = Encoder(backbone, reba(pool=pool))
        yield least(lambda n: encoder.encode([ids[0][:n // 2]]))
    model = Eager(folder).model
    yield least(lambda n: model(input_ids=torch.tensor([(ids[0] * 2)[:n]]), output_attentions=True), 1)
with torch.no_grad():
    print(*probe(folder))
"""


@pytest.mark.slow
def test_rebas_memory_grows_with_the_text_squared_not_with_layers_and_heads(root: Path, tmp_path: Path):
    """In its own process: memory that nothing has used before."""
    folder = tiny("gpt2", tmp_path, n_layer=8, n_head=16, n_positions=512)
    matrices = 8 * 16 * 512 * 512 * 4 // 2**20  # 128 MiB
    bound = matrices // 2
    done = subprocess.run([sys.executable, "-c", PROBE, str(bound), folder], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    last, mean, eager = map(int, done.stdout.split())
    assert eager > 0.9 * matrices, "the probe sees the memory of the authors' way"
    assert last < bound and mean < bound


def dropouts() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(), nn.Dropout()))


def in_training(parent: nn.Module) -> list[nn.Module]:
    return [module for module in parent.modules() if module.training]


def test_a_model_runs_in_eval_mode_and_every_module_gets_its_own_mode_back():
    model = dropouts()
    model.eval()
    model[1][0].train()
    with lock_of(model).running(model):
        assert not in_training(model)
    assert in_training(model) == [model[1][0]]
    model.train()
    with lock_of(model).running(model), lock_of(model).running(model):
        assert not in_training(model)
    assert len(in_training(model)) == 5
    with pytest.raises(KeyboardInterrupt), lock_of(model).running(model):
        raise KeyboardInterrupt
    assert len(in_training(model)) == 5
    with lock_of(model).running(model, keep_mode=True):
        assert len(in_training(model)) == 5


PAD_AT_1 = {"pad_token_id": 1, "bos_token_id": 0, "max_position_embeddings": 514}
ESM = {**SHAPE, "pad_token_id": 1, "mask_token_id": MASK, "emb_layer_norm_before": False}
XLM = {"emb_dim": 64, "n_layers": 3, "n_heads": 4, "vocab_size": 300, "pad_token_id": 1, "max_position_embeddings": 512}
MORE: dict[str, dict[str, Any]] = {
    "data2vec-text": {**SHAPE, **PAD_AT_1},
    "esm absolute": {**ESM, "token_dropout": False, "position_embedding_type": "absolute"},
    "esm": {**ESM, "token_dropout": True, "position_embedding_type": "rotary"},
    "xlm": {**XLM, "pad_index": 1},
}
PADDED = [[40, 1, 1, 41, 42], [50, 51, 1], [1, 60, 61, 62, 1, 63], [70, 71, 72, 73], [1, 1], [40, 41, 42, 43, 1]]
KINDS = ["roberta", "mpnet", "bert", *MORE]


@pytest.mark.parametrize("kind", KINDS)
def test_padding_within_a_text_is_a_token_like_any_other(kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tiny_families, "FAMILIES", {**tiny_families.FAMILIES, **MORE})
    model, tokenizer = tiny_model(kind).requires_grad_(False), Tokenizer(tiny_tokenizer("roberta"))
    full = [torch.tensor([[*tokenizer.prefix, *ids, *tokenizer.suffix]]) for ids in PADDED]
    alone = [model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].mean(0) for ids in full]
    model.set_attn_implementation(NAME)
    got = Encoder(check(model, tokenizer), classical()).encode(PADDED)
    assert difference(got, torch.stack(alone).numpy()) < 1e-5
