"""The plan of the house, kept by reading the source: who may import whom, and how long a file may grow."""

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "afterword"

ROOMS = """
    errors manifest lock placed safety shapes tokens writing layout features batch views rules fused outside attention
    gate company facts bare sight positions anatomy taps memory cache products probe serving stream unread kernels
    backbone precision trials selfcheck source loading saving states weights frequency templates methods
    codec words texts embed look post limits distinct run similarity scores
    processes token_states options interface files stock fingerprint folder encoder st
    tasks tune analysis train adapters cli
""".split()
"""Lowest first: a room imports only from rooms in front of it."""

DOORS = {("interface", "st"), ("options", "st")}
"""Imports against the order, inside a function: an encoder knows how to write itself down, and starts light."""

MAY_IMPORT = {
    "transformers": {"attention", "backbone", "outside", "loading", "saving", "st", "train", "adapters"},
    "sentence_transformers": {"st", "train", "adapters"},
    "peft": {"train"},
    "mteb": {"adapters"},
    "matplotlib": {"analysis/plots"},
}
"""Heavy libraries, and the only rooms (or files) that may name them."""

FILES = sorted(SOURCE.rglob("*.py"))
MODULES = [path for path in FILES if path.name not in {"__init__.py", "__main__.py"}]


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").as_posix()


def room_of(path: Path) -> str:
    return name_of(path).split("/")[0]


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every imported module as a dotted name, relative ones resolved, and whether the import is inside a function."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {
        node
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(outer)
    }
    package = ("afterword", *path.relative_to(SOURCE).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            whole = ".".join((*base, *filter(None, [node.module])))
            # `from . import batch` imports a room, `from .batch import lay` a name of one
            yield from ((f"{whole}.{alias.name}", node in inside) for alias in node.names)


def test_the_house_is_there():
    rooms = {room_of(path) for path in MODULES}
    assert {"errors", "layout", "attention", "backbone"} <= rooms
    assert not rooms - set(ROOMS), f"no place in the order: {sorted(rooms - set(ROOMS))}; add it to ROOMS"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_room_imports_only_from_the_rooms_below_it(path: Path):
    room = room_of(path)
    allowed = {*ROOMS[: ROOMS.index(room) + 1]}
    for module, inside in imports(path):
        top, _, rest = module.partition(".")
        target = rest.split(".")[0]
        if top == "afterword" and target in ROOMS and target not in allowed:
            assert inside and (room, target) in DOORS, f"{name_of(path)} imports {module}, which stands above it"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_heavy_libraries_are_named_only_where_they_belong(path: Path):
    for module, _ in imports(path):
        allowed = MAY_IMPORT.get(module.split(".")[0])
        if allowed is not None:
            assert {room_of(path), name_of(path)} & allowed, f"{name_of(path)} imports {module}: only {sorted(allowed)}"


def test_the_import_reader_sees_what_there_is():
    assert "afterword.errors" in {module.rpartition(".")[0] for module, _ in imports(SOURCE / "layout.py")}
    assert "transformers.AttentionInterface" in {module for module, _ in imports(SOURCE / "attention.py")}


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
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert functions
    assert not [f"{name} ({lines})" for name, lines in functions if lines > 50]
    assert median(lines for _, lines in functions) < 12


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_has_its_tests(path: Path):
    folder, stem = path.relative_to(SOURCE).parent, path.stem.lstrip("_")
    mirrors = [HERE / folder / f"test_{stem}.py", *(HERE / f"test_{part}.py" for part in folder.parts)]
    assert any(mirror.exists() for mirror in mirrors), f"{name_of(path)}: no {mirrors[0].relative_to(HERE.parent)}"
