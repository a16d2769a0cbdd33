from typing import Any

import pytest

from afterword.backbone.bidirectional import Sight
from afterword.errors import MethodError, NoSuchHead


def test_which_layers():
    assert Sight(last=2).resolve(5) == {3, 4}
    assert Sight(layers=(4, 1, 1)).resolve(5) == {1, 4} and Sight(layers=(4, 1, 1)) == Sight(layers=(1, 4))
    assert not Sight() and Sight(last=1) and Sight(layers=(0,)) and Sight(couple="angle031")
    assert Sight(last=2, couple="add").first(5) == 3


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: Sight(couple="sum"), MethodError, "couple='sum': choose one of replace, add"),  # type: ignore[arg-type]
        (lambda: Sight(last=-1), MethodError, "last=-1"),
        (lambda: Sight(last="all"), MethodError, "last='all'.*or 'auto'"),  # type: ignore[arg-type]
        (lambda: Sight(last="auto", layers=(2,)), MethodError, "give one of the two"),
        (lambda: Sight(last="auto").resolve(3), MethodError, "needs pairs.*turning-point.*resolve"),
        (lambda: Sight(last=1, layers=(2,)), MethodError, "give one of the two"),
        (lambda: Sight(last=4).resolve(3), NoSuchHead, "the model has 3 layers"),
        (lambda: Sight(layers=(3,)).resolve(3), NoSuchHead, "layers 0 to 2"),
        (lambda: Sight(layers=(0, 2), couple="add").first(3), MethodError, "layers must be the last ones"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, error: type[Exception], said: str):
    with pytest.raises(error, match=said):
        make()
