"""Every error that Afterword raises on purpose.

    AfterwordError
    ├── InputError              a text, a word, an argument
    │   ├── TooLong             a text over the length, under on_long="error"
    │   └── WordNotFound        a word that is not in its text, or was cut off
    ├── ModelError              a model
    │   ├── UnsupportedModel    no exact way of running it is known
    │   ├── AttentionNotSeen    the method reads attention, the model shows none
    │   └── NoMaskToken         the template needs [MASK], the tokenizer has none
    ├── MethodError             a method and its options
    │   ├── UnknownMethod       no method of that name
    │   └── NoSuchHead          a head or a layer that is not there
    ├── NotFitted               transform before fit
    ├── DataError               a file of the user's
    │   ├── MissingDataset      a file or folder that is not there
    │   └── BadRow              one row, named by file and line
    └── MissingExtra            an optional dependency (also an ImportError)

A message says what was wrong, shows its value and names the fix, on one line.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence


class AfterwordError(Exception):
    """The root: catch it to catch everything that is not a bug."""


class InputError(AfterwordError, ValueError):
    """A text, a word or an argument that cannot be used."""


class TooLong(InputError):
    """A text longer than the model can read, under ``on_long="error"``."""


class WordNotFound(InputError):
    """A word that does not occur in its text, or was cut off with its end."""


class ModelError(AfterwordError):
    """Something is wrong with the model."""


class UnsupportedModel(ModelError):
    """No way of running this model gives its own, exact vectors."""


class AttentionNotSeen(ModelError):
    """The method reads attention weights and this model has none to read."""


class NoMaskToken(ModelError):
    """The template holds ``[MASK]`` and the tokenizer has no such token."""


class MethodError(AfterwordError, ValueError):
    """A method, or one of its options, that makes no sense."""


class UnknownMethod(MethodError):
    """No method has this name."""


class NoSuchHead(MethodError):
    """A layer or an attention head that the model does not have."""


class NotFitted(AfterwordError):
    """A transformation was applied before it was fitted."""


class DataError(AfterwordError):
    """A file or folder that cannot be used."""


class MissingDataset(DataError, FileNotFoundError):
    """A file or folder that is not there."""


class BadRow(DataError, ValueError):
    """One row of a file, named by its line."""

    def __init__(self, path: object, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")
        self.path, self.line, self.problem = path, line, problem


class MissingExtra(AfterwordError, ImportError):
    """An optional dependency that is not installed.

    >>> str(MissingExtra("mteb", "evaluate"))
    'mteb is not installed: pip install "afterword[evaluate]"'
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f'{package} is not installed: pip install "afterword[{extra}]"')
        self.package, self.extra = package, extra


class TextsCut(UserWarning):
    """Texts were cut: ``lost`` tokens each, out of ``texts`` texts; several warnings can be summed up by these."""

    def __init__(self, lost: Sequence[int], texts: int, max_length: int | None) -> None:
        self.lost, self.texts, self.max_length = lost, texts, max_length
        super().__init__(
            f"{len(lost)} of {texts} texts were cut to max_length={max_length}: they lost "
            f"{statistics.median(lost):.0f} tokens in the middle, {max(lost)} at most"
        )
