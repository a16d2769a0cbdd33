import pytest

from afterword import post as p
from afterword.errors import MethodError
from afterword.post import Centre, Flow, Normalise, Post, RemoveTop, Truncate, Whiten, parse_post, spelled


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("none", ()),
        ("normalise", (Normalise(),)),
        ("centre", (Centre(),)),
        ("whiten", (Whiten(),)),
        ("whiten:dimensions=256+normalise", (Whiten(256), Normalise())),
        ("remove_top:k=3", (RemoveTop(3),)),
        (
            "whiten:epsilon=0.001,rotate=True+remove_top:centre=false",
            (Whiten(None, 1e-3, True), RemoveTop(centre=False)),
        ),
        ("remove_mean+standardise", (p.RemoveMean(), p.Standardise())),
        (
            "embed_filter:spectrum=tail,keep=0.25+embed_filter:keep=8",
            (p.EmbedFilter("tail", 0.25), p.EmbedFilter(keep=8)),
        ),
        ("truncate:dimensions=64+centre+normalise", (Truncate(64), Centre(), Normalise())),
        ("flow:epochs=2,coupling=affine,rate=0.0005,seed=3", (Flow(2, coupling="affine", rate=5e-4, seed=3),)),
    ],
)
def test_steps_as_a_person_writes_them(text: str, steps: tuple[Post, ...]):
    assert parse_post(text) == steps
    assert parse_post(spelled(steps)) == steps


def test_blanks_numbers_and_defaults_may_be_written_out():
    assert parse_post(" whiten : dimensions = none + normalise ") == (Whiten(), Normalise())
    assert parse_post("flow:rate=1e-4") == (Flow(rate=1e-4),)
    assert parse_post("flow:rate=1") == (Flow(rate=1),)
    assert spelled(parse_post("flow:epochs=1,seed=0")) == "flow"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("whitening", "did you mean 'whiten'"),
        ("none+centre", "'none'"),
        ("whiten:size=3", "'size'"),
        ("whiten:dimensions=a", "dimensions='a'"),
        ("flow:rate=fast", "rate='fast'"),
        ("truncate", "dimensions"),
        ("remove_top:k", "'k'"),
    ],
)
def test_a_mistake_is_named(text: str, value: str):
    with pytest.raises(MethodError, match=value):
        parse_post(text)
