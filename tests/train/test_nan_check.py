import math

import pytest

from afterword.errors import ModelError
from afterword.train.nan_check import check_finite


def test_finite_numbers_pass():
    check_finite(0.0, 1e38, 1, str)


@pytest.mark.parametrize(
    ("loss", "gradient", "words"),
    [
        (math.nan, 1.0, r"step 7: the loss is nan; checkpoint 6 is kept; lower the learning rate"),
        (math.inf, math.nan, r"step 7: the loss is inf"),
        (0.5, math.inf, r"step 7: the gradient is inf; checkpoint 6 is kept"),
    ],
)
def test_the_first_number_that_is_not_finite_is_named(loss: float, gradient: float, words: str):
    with pytest.raises(ModelError, match=words):
        check_finite(loss, gradient, 7, lambda: "checkpoint 6 is kept")
