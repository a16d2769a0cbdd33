"""Free memory is the machine's or the container's, whichever is less."""

from pathlib import Path

import pytest

from afterword.backbone.free_memory import free_memory

MACHINE = "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n"
FREE = 8_000_000 * 1024


def machine(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(MACHINE)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_of_this_machine():
    assert free_memory() > 1 << 20


@pytest.mark.parametrize(
    ("cgroup", "files", "free"),
    [
        ("0::/\n", {}, FREE),
        ("0::/\n", {"memory.max": "max", "memory.current": "1000"}, FREE),
        ("0::/\n", {"memory.max": "5000", "memory.current": "1000"}, 4000),
        ("0::/\n", {"memory.max": "5000", "memory.current": "1000",
                    "memory.stat": "anon 300\ninactive_file 600"}, 4600),
        ("0::/\n", {"memory.max": "5000", "memory.current": "7000"}, 0),
        ("0::/a/b\n", {"a/memory.max": "5000", "a/memory.current": "1", "a/b/memory.max": "max"}, 4999),
        ("0::/a/b\n", {"a/memory.max": "5000", "a/memory.current": "1", "a/b/memory.max": "90",
                       "a/b/memory.current": "20"}, 70),
        ("0::/gone\n", {"memory.max": "5000", "memory.current": "1000"}, 4000),
        ("5:cpu:/x\n4:memory:/x\n", {"memory/x/memory.limit_in_bytes": "800",
                                     "memory/x/memory.usage_in_bytes": "300"}, 500),
        ("4:memory:/x\n", {"memory/memory.limit_in_bytes": "9223372036854771712",
                           "memory/memory.usage_in_bytes": "300"}, FREE),
        ("0::/\n", {"memory.max": "nonsense", "memory.current": "x"}, FREE),
        ("nonsense", {}, FREE),
    ],
)  # fmt: skip
def test_of_a_container(tmp_path, cgroup, files, free):
    assert free_memory(machine(tmp_path, cgroup, files)) == free
