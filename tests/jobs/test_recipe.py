"""A recipe is plain values: another process that is given it makes the same vectors."""

import pickle
from pathlib import Path

import numpy as np

from afterword import Encoder, echo
from afterword.jobs.recipe import JobRecipe, Load
from afterword.jobs.rows import Item
from afterword.post import parse_post

TEXTS = ["a", "b c", "d"]


def test_a_pickled_recipe_embeds_alike(llama: Path) -> None:
    recipe = JobRecipe(Load(str(llama)), ("echo",), {"normalize_embeddings": True})
    opened = pickle.loads(pickle.dumps(recipe)).open()
    items = [Item(i, text) for i, text in enumerate(TEXTS)]
    wanted = Encoder.load(llama, echo()).encode(TEXTS, normalize_embeddings=True)
    assert np.array_equal(opened.encode(items, lambda _: None)["vector"], wanted)
    several = JobRecipe(Load(str(llama)), ("echo", "classical")).open().encode(items, lambda _: None)
    assert list(several) == ["echo", "classical"]


def test_steps_are_fitted_to_its_texts(llama: Path) -> None:
    texts = tuple(f"text {i} of some" for i in range(9))
    recipe = JobRecipe(Load(str(llama)), steps=tuple(parse_post("centre")), texts=texts)
    items = [Item(i, text) for i, text in enumerate(TEXTS)]
    encoder = Encoder.load(llama)
    mean = encoder.encode(list(texts)).astype(np.float64).mean(0)
    found = recipe.open().encode(items, lambda _: None)["vector"]
    assert np.allclose(found, encoder.encode(TEXTS) - mean, atol=1e-5)


def test_the_files_of_its_methods(tmp_path: Path) -> None:
    for name in ("a.py", "b.json"):
        (tmp_path / name).write_text("{}")
    methods = ("echo", f"@{tmp_path}/a.py:two", f"@{tmp_path}/b.json", f"@{tmp_path}/c.py:three")
    assert JobRecipe(Load("m"), methods).files == [tmp_path / "a.py", tmp_path / "b.json"]
