"""Few rows of a data set: what holds of all of them is shown on some, at the cost of these."""

import gzip
from itertools import islice
from pathlib import Path

from afterword.tasks.rows import Folder


def fewer(data: Path, folder: Path, name: str, step: int) -> Folder:
    """A folder that holds every so-manieth row of a data set.

    Args:
        data: the folder with all of it.
        folder: the new one.
        name: of the data set, as in "en/sts/sts16.test".
        step: from one row to the next that is taken.
    """
    file = f"{name}.jsonl.gz"
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    with (
        gzip.open(data / file, "rt", encoding="utf-8") as rows,
        gzip.open(folder / file, "wt", encoding="utf-8") as few,
    ):
        few.writelines(islice(rows, None, None, step))
    return Folder(folder)
