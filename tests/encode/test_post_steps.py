import pytest

from afterword import Encoder, classical
from afterword.backbone.backbone import Backbone
from afterword.encode.sentences import steps_of
from afterword.errors import InputError
from afterword.post import Normalise, Truncate


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return Encoder.load("afterword-mini").backbone


def test_an_encoders_own_steps_come_first_then_the_cut_then_the_length(backbone: Backbone) -> None:
    own = (Truncate(32),)
    assert steps_of(backbone, [classical()], own, None, False) == own
    assert steps_of(backbone, [classical()], own, 8, True) == (Truncate(32), Truncate(8), Normalise())
    assert steps_of(backbone, [], (), 8, False) == (Truncate(8),)


def test_more_components_than_there_are_behind_the_own_steps_are_refused(backbone: Backbone) -> None:
    with pytest.raises(InputError, match="truncate_dim=33: vectors have 32 components"):
        steps_of(backbone, [classical()], (Truncate(32),), 33, False)
    with pytest.raises(InputError, match="truncate_dim"):
        steps_of(backbone, [classical()], (), 0, False)
