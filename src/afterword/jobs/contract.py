"""What a run was begun with. It is written beside the run's parts, and compared before the run goes on."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import DataError

Contract = dict[str, Any]
SEAL = "hash"


def plain(values: Mapping[str, Any]) -> Contract:
    """Values as a JSON file gives them back.

    >>> plain({"--method": ("echo",)})
    {'--method': ['echo']}
    """
    found: Contract = json.loads(json.dumps(values, default=str))
    return found


def read(path: Path) -> Contract | None:
    """An object in a file of JSON; None if there is none, or if it is damaged."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_marker(path: Path) -> Contract | None:
    """The file that says that a part is complete; None if there is none, or if it is damaged."""
    found = read(path) or {}
    if not all(type(found.get(name)) is int for name in ("rows", "rejected")):
        return None
    if not all(isinstance(found.get(name), str) for name in ("input", "each", "part")):
        return None
    try:
        hashes = base64.b64decode(found["each"], validate=True)
    except ValueError:
        return None
    return found if len(hashes) == 4 * found["rows"] else None


def first_difference(before: Any, now: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first value that differs: its name, what it was, and what it is; None if all are equal.

    >>> first_difference({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}})
    ('b c', 2, 3)
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*now, *before]):
            found = first_difference(before.get(key), now.get(key), f"{name} {key}".strip())
            if found is not None:
                return found
        return None
    return None if before == now else (name, before, now)


def check_same(folder: Path, before: Contract, now: Contract) -> None:
    """Refuse to go on with parts that were made in another way.

    Raises:
        DataError: a value differs; the first one is named.
    """
    found = first_difference(before, now)
    if found is not None:
        name, old, new = found
        raise DataError(
            f"{folder} was begun with {name} {spelled(old)}, and now it is {spelled(new)}: give the same command, or "
            "--overwrite to start anew"
        )


def check_made_by(folder: Path, before: Contract, now: Contract) -> None:
    """Refuse to go on with vectors that are made by something else; what an earlier version did not write is not asked.

    Raises:
        DataError: a value differs; the first one is named.
    """
    check_same(folder, before, now)


def spelled(value: Any) -> str:
    """A value of a command line in a message.

    >>> spelled(None), spelled("echo"), spelled(["id"])
    ('not given', 'echo', '["id"]')
    """
    return "not given" if value is None or value == [] else str(value) if isinstance(value, str) else json.dumps(value)


def sealed(values: Contract) -> Contract:
    """Values with a hash of them, by which `read_sealed` sees that they are as they were written."""
    written = json.dumps(values, sort_keys=True).encode()
    return {**values, SEAL: hashlib.blake2b(written, digest_size=16).hexdigest()}


def read_sealed(path: Path) -> Contract | None:
    """The values of a file of JSON; None if there is none, or if they are not as they were written."""
    found = read(path) or {}
    values = {name: value for name, value in found.items() if name != SEAL}
    return values if SEAL in found and sealed(values) == found else None
