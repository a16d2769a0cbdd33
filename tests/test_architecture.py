"""The plan of the house, kept by reading the source: who may import whom, and how long a file may grow."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "afterword"

ROOMS = {
    "errors": "",
    "shapes": "",
    "spelling": "errors",
    "text": "errors shapes spelling",
    "backbone": "errors shapes spelling text",
    "methods": "errors shapes spelling text backbone",
    "post": "errors spelling backbone",
    "encode": "errors spelling text backbone methods post",
    "files": "errors spelling text backbone methods post",
    "encoder": "text methods post encode files",
    "st": "errors text backbone methods post encode files encoder",
    "tasks": "errors spelling text methods post encode files encoder",
    "tune": "errors shapes text backbone methods post encode files encoder tasks",
    "analysis": "errors text backbone methods encode files encoder tasks",
    "plots": "errors files analysis",
    "train": "errors text backbone methods files encoder st tasks analysis plots",
    "adapters": "errors text methods post encode files encoder st tasks",
    "jobs": "errors text methods post encode files encoder",
    "groups": "errors",
    "index": "errors files jobs",
    "cli": "errors spelling text backbone methods post encode files encoder tasks tune analysis plots train adapters "
    "jobs groups index",
}
"""Which rooms a room may import, and does: an arrow that is gone goes here too. Lowest first."""

DOORS = {("encoder", "st"), ("methods", "backbone")}
"""Imports of our own inside a function: `st.py` subclasses classes of a library that may not be installed, and a method
is read and checked before torch is imported."""

MAY_IMPORT = {
    "transformers": {"backbone", "st", "train", "adapters"},
    "sentence_transformers": {"encode", "st", "train", "adapters"},
    "peft": {"train"},
    "mteb": {"adapters"},
    "matplotlib": {"plots"},
    "ray": {"jobs/on_ray", "jobs/workers_ray"},
    "lancedb": {"index", "adapters"},
    "sklearn": {"groups", "tasks"},
}
"""Heavy libraries, and the only rooms (or files) that may name them."""

THEIRS = {"_get_grad_norm", "_save_checkpoint", "_version"}
"""Private names of other libraries that ours share."""

FILES = sorted(SOURCE.rglob("*.py"))
MODULES = [path for path in FILES if path.name not in {"__init__.py", "__main__.py"}]
INSIDE = [path for path in FILES if path.parent != SOURCE or path in MODULES]
"""All but the package's own entry, which imports a room when its name is first asked for."""


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").as_posix()


def room_of(path: Path) -> str:
    return name_of(path).split("/")[0]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def imports(path: Path) -> tuple[tuple[str, str], ...]:
    """Every imported module as a dotted name, relative ones resolved, and where: "top", "function" or "typing"."""
    return tuple(imported(path))


def imported(path: Path) -> Iterator[tuple[str, str]]:
    tree = parsed(path)
    outer = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    typing = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    where = {node: "function" for one in outer for node in ast.walk(one)}
    where |= {node: "typing" for one in typing for node in ast.walk(one)}
    package = ("afterword", *path.relative_to(SOURCE).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, where.get(node, "top")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            whole = ".".join((*base, *filter(None, [node.module])))
            # `from . import batch` imports a room, `from .batch import lay` a name of one
            yield from ((f"{whole}.{alias.name}", where.get(node, "top")) for alias in node.names)


def arrows(path: Path) -> Iterator[tuple[str, str, str]]:
    """The rooms beside its own that a file imports, the imported name, and where."""
    for module, where in imports(path):
        top, _, rest = module.partition(".")
        target = rest.split(".")[0]
        if top == "afterword" and target in ROOMS and target != room_of(path):
            yield target, module, where


def test_the_house_is_there():
    rooms = {room_of(path) for path in MODULES}
    assert rooms == set(ROOMS), f"no place in ROOMS, or gone: {sorted(rooms ^ set(ROOMS))}"
    order = list(ROOMS)
    for room, below in ROOMS.items():
        assert set(below.split()) <= set(order[: order.index(room)]), f"{room} imports a room that is not below it"


@pytest.mark.parametrize("path", INSIDE, ids=name_of)
def test_a_file_imports_only_what_its_room_may(path: Path):
    room = room_of(path)
    for target, module, where in arrows(path):
        if where != "function" or (room, target) not in DOORS:
            assert target in ROOMS[room].split() or (room, target, where) == ("st", "encoder", "typing"), (
                f"{name_of(path)} imports {module}, and {room} may import {ROOMS[room] or 'no other room'}"
            )


@pytest.mark.parametrize("room", ROOMS)
def test_no_arrow_is_allowed_that_is_not_there(room: str):
    there = {target for path in INSIDE if room_of(path) == room for target, _, _ in arrows(path)}
    assert not set(ROOMS[room].split()) - there, f"{room} no longer imports these: take them out of ROOMS"


@pytest.mark.parametrize("path", [path for path in INSIDE if room_of(path) != "cli"], ids=name_of)
def test_no_file_imports_our_own_inside_a_function(path: Path):
    hidden = [
        module
        for module, where in imports(path)
        if module.startswith("afterword.")
        and where == "function"
        and (room_of(path), module.split(".")[1]) not in DOORS
    ]
    assert not hidden, f"{name_of(path)} imports {hidden} inside a function: import at the top"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_heavy_libraries_are_named_only_where_they_belong(path: Path):
    for module, _ in imports(path):
        allowed = MAY_IMPORT.get(module.split(".")[0])
        if allowed is not None:
            assert {room_of(path), name_of(path)} & allowed, f"{name_of(path)} imports {module}: only {sorted(allowed)}"


def test_the_import_reader_sees_what_there_is():
    assert ("afterword.errors.InputError", "top") in set(imports(SOURCE / "text" / "layout.py"))
    assert ("transformers.AttentionInterface", "top") in set(imports(SOURCE / "backbone" / "attention.py"))
    assert "function" in {where for _, where in imports(SOURCE / "cli" / "model.py")}


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body: what it is told to do, less how it is called and what is told of it."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_files_and_functions_stay_short():
    lengths = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    too_long = {name: lines for name, lines in lengths.items() if lines > 400}
    assert not too_long, f"over 400 lines: {too_long}"
    assert median(lengths.values()) < 150, f"median over 150 lines: {lengths}"
    functions = [
        (f"{name_of(path)}:{node.lineno} {node.name}", code_lines(node))
        for path in FILES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert functions
    assert not [f"{name} ({lines})" for name, lines in functions if lines > 50]
    assert median(lines for _, lines in functions) < 12


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_has_its_tests(path: Path):
    mirror = HERE / path.relative_to(SOURCE).parent / f"test_{path.stem}.py"
    assert mirror.exists(), f"{name_of(path)}: no {mirror.relative_to(HERE.parent)}"


def test_the_root_holds_only_what_has_no_other_room():
    there = {path.name for path in SOURCE.glob("*.py")}
    assert there == {"__init__.py", "__main__.py", "errors.py", "shapes.py", "spelling.py", "encoder.py", "st.py"}
    for folder in {path.parent for path in FILES} - {SOURCE}:
        assert ast.get_docstring(parsed(folder / "__init__.py")), f"{folder.name} says nothing"


@pytest.mark.parametrize("path", INSIDE, ids=name_of)
def test_no_file_uses_another_files_private_names(path: Path):
    tree, others = parsed(path), PRIVATE - private_names(path)
    taken = [name for module, _ in imports(path) if (name := module.rpartition(".")[2]) in PRIVATE]
    taken += [
        f"{ast.unparse(node)} (line {node.lineno})"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in others
    ]
    assert not taken, f"{name_of(path)} uses {taken}, which another file keeps to itself"


@cache
def private_names(path: Path) -> set[str]:
    """The names with one underscore that a file defines: functions, classes, methods, attributes of its own objects."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


PRIVATE = {name for path in FILES for name in private_names(path)} - THEIRS


def test_a_public_class_is_defined_once():
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name_of(path))
    assert len(homes) > 100
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {"Flow": ["post/flow", "st"]}


def test_no_verb_imports_a_verb():
    entry = SOURCE / "cli" / "__init__.py"
    inner = {module.split(".")[2] for module, _ in imports(entry) if module.startswith("afterword.cli.")}
    verbs = {name for name in inner if (SOURCE / "cli" / f"{name}.py").read_text("utf-8").startswith('"""``afterword ')}
    assert len(verbs) >= 10
    for verb in verbs:
        path = SOURCE / "cli" / f"{verb}.py"
        taken = {m.split(".")[2] for m, _ in imports(path) if m.startswith("afterword.cli.") and m.count(".") > 2}
        assert not taken & verbs - {verb}, f"cli/{verb}.py imports {sorted(taken & verbs)}: move what both need"
