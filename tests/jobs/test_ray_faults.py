"""Each test starts a Ray of its own, of one or of several nodes: a node, all actors or the driver die."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.test_on_ray import run
from tests.jobs.test_pool import Heard, alive, pids, shards, until
from tests.toy_worker import Toy, lines

from afterword.errors import ModelError
from afterword.jobs.on_ray import STORE
from afterword.jobs.pool import Outcome

pytest.importorskip("ray")
pytestmark = pytest.mark.soak


def test_actors_that_never_start_end_the_run(tmp_path: Path):
    with pytest.raises(ModelError, match=r"^5 actors of Ray ended before their first shard$"):
        run(Toy(tmp_path, starts=["SIGKILL"] * 99), range(9), retries=99)


def test_a_node_dies(tmp_path: Path):
    from ray.cluster_utils import Cluster

    options = {"object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **options})
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(2)]
    try:
        cluster.wait_for_nodes()
        toy = Toy(tmp_path, seconds=0.2)

        def kill(number: int, marker: dict[str, Any]) -> None:
            if len(heard.markers) == 6:
                cluster.remove_node(nodes[1], allow_graceful=False)

        heard = Heard(kill)
        assert run(toy, range(30), heard, address=cluster.address) == Outcome(30, {})
        assert set(shards(toy)) == {f"{n:06}" for n in range(30)}
        assert len(pids(toy)) >= 2 and len(heard.markers) >= 6
    finally:
        cluster.shutdown()


DRIVER = """
import sys
from pathlib import Path
from tests.toy_worker import Toy
from tests.jobs.test_pool import Heard
from afterword.jobs.on_ray import run_on_ray
run_on_ray(Toy(Path(sys.argv[1]), seconds=1000), range(9), workers=2, listener=Heard())
"""


def test_the_driver_is_killed_and_its_actors_with_it(tmp_path: Path):
    toy = Toy(tmp_path)
    path = os.pathsep.join(["", *sys.path])
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, tmp_path], env={**os.environ, "PYTHONPATH": path})
    until(lambda: len(lines(tmp_path / "log")) == 2)
    driver.kill()
    driver.wait()
    until(lambda: not alive(toy))
    assert len(pids(toy)) == 2 and not shards(toy)
