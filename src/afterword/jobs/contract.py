"""What a run was begun with. It is written beside the run's parts, and compared before the run goes on."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import DataError

Contract = dict[str, Any]


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


def spelled(value: Any) -> str:
    """A value of a command line in a message.

    >>> spelled(None), spelled("echo"), spelled(["id"])
    ('not given', 'echo', '["id"]')
    """
    return "not given" if value is None or value == [] else str(value) if isinstance(value, str) else json.dumps(value)


def wrong_value(begun: Contract) -> str | None:
    """The first value of a job.json that has another type than a job writes; None if there is none.

    >>> wrong_value({"files": [], "--method": "echo"})
    '--method'
    """
    files, methods = begun.get("files"), begun.get("--method")
    stamps = {"file": str, "size": int, "mtime_ns": int}
    right = {
        "files": isinstance(files, list)
        and all(isinstance(f, dict) and all(type(f.get(k)) is kind for k, kind in stamps.items()) for f in files),
        "--method": methods is None or (isinstance(methods, list) and all(isinstance(m, str) for m in methods)),
        "command": isinstance(begun.get("command", {}), dict),
    }
    return next((name for name, good in right.items() if not good), None)
