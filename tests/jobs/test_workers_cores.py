"""The cores that a process may use."""

import os
from pathlib import Path

import pytest

from afterword.jobs.workers_cores import cores

OWN = len(os.sched_getaffinity(0))


def rooted(root: Path, groups: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(("limit", "expected"), [("max 100000", OWN), ("50000 100000", 1), ("9900000 100000", OWN)])
def test_version_two(tmp_path: Path, limit: str, expected: int):
    root = rooted(tmp_path, "0::/a/b\n", {"sys/fs/cgroup/a/cpu.max": limit, "sys/fs/cgroup/a/b/cpu.max": "max 100000"})
    assert cores(root) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", OWN), ("100000", 1), ("5000000", OWN)])
def test_version_one(tmp_path: Path, quota: str, expected: int):
    top = "sys/fs/cgroup/cpu"
    files = {f"{top}/cpu.cfs_quota_us": quota + "\n", f"{top}/cpu.cfs_period_us": "100000\n"}
    assert cores(rooted(tmp_path, "4:cpu,cpuacct:/a\n3:memory:/a\n", files)) == expected


def test_no_groups(tmp_path: Path):
    assert cores(tmp_path) == OWN
    assert 1 <= cores() <= OWN
