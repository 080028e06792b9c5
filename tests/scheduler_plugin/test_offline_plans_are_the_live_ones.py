"""What `outrider plan` says before a job is submitted is what the planner then does."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from outrider.api.gangplacement import GangPlacement
from outrider.api.landing import LandingGang
from outrider.api.names import RELEASE_NAMESPACE
from outrider.kube.client import Client
from outrider.kube.kinds import JOBS
from scheduler_plugin.config import Config
from scheduler_plugin.offline.answer import answer
from scheduler_plugin.offline.pods import hypothesis
from scheduler_plugin.offline.saved import Saved, decode, encode
from scheduler_plugin.offline.take import take
from testbed.kwok_stages import ENDLESS
from tests.scheduler_plugin.real import bound, eventually, placement_of, planned, pod_spec

pytestmark = [pytest.mark.slow, pytest.mark.control_plane, pytest.mark.usefixtures("scheduling", "idle_nodes")]


def job(name: str, size: int, gpus: int = 8) -> dict[str, Any]:
    meta = {"labels": {"job": name}, "annotations": {ENDLESS: "true"}}
    template = {"metadata": meta, "spec": pod_spec(gpus=gpus)}
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def landed(saved: Saved, namespace: str, body: dict[str, Any]) -> LandingGang:
    again = decode(encode(saved, packed=True))
    (gang,) = answer(again, hypothesis(yaml.safe_dump(body), namespace, again.now)).gangs
    return gang


def seats(of: LandingGang | GangPlacement) -> dict[int, str]:
    ranks = of.ranks if isinstance(of, LandingGang) else of.status.ranks
    return {rank.rank: rank.node for rank in ranks}


async def snapshot(kubeconfig: Path) -> Saved:
    return await take(kubeconfig, RELEASE_NAMESPACE, Config(plan_seconds=5.0))


async def test_a_job_lands_where_it_was_said_to_land(client: Client, kubeconfig: Path, namespace: str) -> None:
    for name, size, gpus in (("large", 20, 8), ("small", 3, 8), ("halves", 5, 4)):
        body = job(name, size, gpus)
        said = landed(await snapshot(kubeconfig), namespace, body)
        assert said.fits, said
        await client.create(JOBS, body, namespace)
        done = await planned(client, namespace, f"job-{name}")
        assert seats(done) == seats(said)
        assert (done.status.domain, done.status.spares) == (said.domain, said.spares)


async def test_a_job_that_does_not_fit_waits_for_what_it_was_said_to_wait_for(
    client: Client, kubeconfig: Path, namespace: str
) -> None:
    await client.create(JOBS, job("first", 40), namespace)
    await bound(client, namespace, "first", 40)
    body = job("second", 12)
    said = landed(await snapshot(kubeconfig), namespace, body)
    assert not said.fits
    await client.create(JOBS, body, namespace)

    async def refused() -> GangPlacement | None:
        found = await placement_of(client, namespace, "job-second")
        return found if found is not None and found.status.why is not None else None

    found = await eventually(refused)
    assert found.status.why == said.why
    assert found.status.message.startswith(said.message)
    assert said.why is not None
    assert said.why.ends == [f"Job {namespace}/first"]
    assert msgspec.json.decode(msgspec.json.encode(said), type=LandingGang) == said
