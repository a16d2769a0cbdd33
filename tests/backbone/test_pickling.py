import pickle
from typing import Any

import torch
from tests.tiny import tiny_model
from torch import nn

from afterword.backbone.pickling import is_recorder, without_recorders


def recorders(model: nn.Module) -> int:
    return sum(is_recorder(h) for m in model.modules() for h in m._forward_hooks.values())


class Doubling:
    """A user's hook, which pickle can take along."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        return output * 2


def test_a_model_that_recorded_its_states_can_be_pickled_without_the_recorders():
    model = tiny_model("llama")
    ids = torch.tensor([[7, 8, 9]])
    assert without_recorders(model) is model
    with torch.no_grad():
        model.norm.register_forward_hook(Doubling())
        wanted = model(ids, output_hidden_states=True)
        assert (count := recorders(model)) > 0
        held: dict[int, nn.Module] = {}
        stripped = without_recorders(model, held)
        assert recorders(model) == count and recorders(stripped) == 0
        assert stripped.layers[0].self_attn is held[id(model.layers[0].self_attn)]
        assert [p.data_ptr() for p in stripped.parameters()] == [p.data_ptr() for p in model.parameters()]
        other = pickle.loads(pickle.dumps(stripped))
        found = other(ids, output_hidden_states=True)
    assert torch.equal(found.last_hidden_state, wanted.last_hidden_state)
    assert len(found.hidden_states) == 4 and torch.equal(found.hidden_states[1], wanted.hidden_states[1])
