"""The error tree is the one that its docstring draws."""

import re

import pytest

from afterword import errors


def drawn() -> dict[str, str]:
    """Child -> parent, read off the drawing."""
    stack, parents = ["Exception"], {}
    for line in errors.__doc__.splitlines():
        if match := re.match(r"    ([│ ]*)(?:[├└]── )?([A-Z]\w+)(?: |$)", line):
            depth = len(match[1]) // 4 + (1 if "── " in line else 0)
            stack[depth + 1 :] = [match[2]]
            parents[match[2]] = stack[depth]
    return parents


def test_the_drawing_is_true() -> None:
    classes = {n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, errors.AfterwordError)}
    assert {n: c.__bases__[0].__name__ for n, c in classes.items()} == drawn()
    assert len(classes) > 10


def test_a_missing_extra_names_the_command() -> None:
    with pytest.raises(ImportError, match=r'pip install "afterword\[evaluate\]"'):
        raise errors.MissingExtra("mteb", "evaluate")


def test_a_bad_row_names_file_and_line() -> None:
    error = errors.BadRow("a.jsonl", 3, "no field 'text'")
    assert str(error) == "a.jsonl:3: no field 'text'"
    assert (error.path, error.line) == ("a.jsonl", 3)
