"""Print constraints that hold the declared lower bounds: `make lowest` tests with them.

Every core dependency, and what training needs, comes down to the version that pyproject.toml names; torch, and
whatever they bring along, stays where constraints.txt has it (torch alone would cost gigabytes).
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEWER = ("fsspec", "pandas")  # than the lowest datasets takes


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["train"]]
    declared = dict(re.match(r"([\w-]+)>=([\d.]+)", line).groups() for line in requirements)
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    pinned = {name.replace("_", "-"): version for name, version in pinned.items()}
    declared["torch"] = pinned["torch"]
    for name in NEWER:
        pinned.pop(name, None)
    for name, version in sorted((pinned | declared).items()):
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
