"""Real torchrun agents with the injected environment: a lost worker is replaced and training goes on where it was."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.ports import free_port
from tests.inpod.job import Job

pytestmark = pytest.mark.slow


@pytest.fixture
def job(tmp_path: Path, torch_path: Path) -> Iterator[Job]:
    port = free_port()
    made = Job(tmp_path, torch_path, port)
    made.create(0)
    made.wait("the first agent listens", lambda: _listens(port) or None)
    made.create(1)
    made.create(2)
    yield made
    made.stop()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("victim", [2, 0], ids=["worker", "rendezvous host"])
def test_replaced_worker_resumes_from_the_checkpoint_on_the_same_loss_curve(job: Job, victim: int) -> None:
    survivor = 1
    job.at_step(survivor, 25)
    curve = {line["step"]: line["loss"] for line in job.pods[survivor].steps()}
    job.pods[victim].kill()
    killed = time.time()
    replacement = job.create(victim)

    resumed = job.resumed(survivor, killed)
    print(f"kill to step: {resumed['unix'] - killed:.1f} s")  # shown by -s: the figure that defaults are tuned by
    assert resumed["world_size"] == 3
    assert resumed["resumed_from"] >= 20
    last = job.at_step(survivor, resumed["step"] + 12)
    for line in job.pods[survivor].steps():
        assert line["loss"] == pytest.approx(curve.setdefault(line["step"], line["loss"]), rel=1e-4)
    assert [b.step >= resumed["step"] for b in replacement.beacons()] == [True]
    assert len(job.pods[survivor].beacons()) == 1, "no beacon of a rank that it no longer is"
    assert not list(job.folder.glob("*/outrider/inpod.error"))
    assert last["step"] > max(curve) - 30
