from afterword.backbone.facts import Facts


def test_states_are_those_of_all_layers_attention_is_that_of_some():
    assert Facts("lfm2", layers=2, heads=4, width=64, depth=3).states == 3
    assert Facts("llama", layers=2, heads=4, width=64).states == 2
