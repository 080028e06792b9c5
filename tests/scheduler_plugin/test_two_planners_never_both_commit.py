"""Writes of a planner on a real API server: those of one that leads no more, and those that come too late."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from outrider.api.gangplacement import GangPlacement, GangPlacementSpec, PlacementState, Reservation
from outrider.api.meta import ObjectMeta
from outrider.api.names import PLANNER_MANAGER
from outrider.kube.client import Client, PatchType
from outrider.kube.errors import Conflict, NotFound
from outrider.kube.events import EventRecorder
from outrider.kube.kinds import GANGPLACEMENTS
from scheduler_plugin.cluster.world import World
from scheduler_plugin.planner.deliver import write_placement
from scheduler_plugin.planner.fence import FencedClient, NotLeading
from scheduler_plugin.planner.planner import Planner
from tests.scheduler_plugin.builders import RULES
from tests.scheduler_plugin.real import eventually

pytestmark = [pytest.mark.slow, pytest.mark.control_plane]


def placement(namespace: str, *, owned: bool = True, held: bool = False) -> GangPlacement:
    spec = GangPlacementSpec(job_kind="Job", job_name="train", job_uid=f"uid-{namespace}", size=2, owned=owned)
    made = GangPlacement(metadata=ObjectMeta(name="job-train", namespace=namespace), spec=spec)
    if not held:
        return made
    seats = Reservation(requests={"nvidia.com/gpu": "8"}, ranks=[0, 1], nodes=["n0", "n1"])
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, reservations=[seats]))


@asynccontextmanager
async def planning(client: Client, world: World) -> AsyncIterator[Planner]:
    """Run a planner in this process."""
    planner = Planner(client, world, EventRecorder(client, PLANNER_MANAGER), RULES)
    running = asyncio.create_task(planner.run())
    try:
        yield planner
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_a_planner_that_leads_no_more_writes_nothing(client: Client, namespace: str) -> None:
    leads = True
    fenced = FencedClient(client, lambda: leads)
    stored = await write_placement(fenced, placement(namespace))
    leads = False
    meta = stored.metadata
    with pytest.raises(NotLeading):
        await write_placement(fenced, stored)
    with pytest.raises(NotLeading):
        await fenced.create(GANGPLACEMENTS, placement(namespace), namespace)
    with pytest.raises(NotLeading):
        await fenced.patch(GANGPLACEMENTS, meta.name, {"status": {"revision": 9}}, PatchType.MERGE, namespace, "status")
    with pytest.raises(NotLeading):
        await fenced.delete(GANGPLACEMENTS, meta.name, namespace)
    assert (await fenced.get(GANGPLACEMENTS, meta.name, namespace)).metadata.resource_version == meta.resource_version


async def test_of_two_plans_made_from_one_state_only_the_first_is_stored(client: Client, namespace: str) -> None:
    known = await write_placement(client, placement(namespace))
    plans = [
        msgspec.structs.replace(
            known, status=msgspec.structs.replace(known.status, state=PlacementState.PLANNED, revision=1, message=who)
        )
        for who in ("first", "second")
    ]
    await write_placement(client, plans[0])
    with pytest.raises(Conflict):
        await write_placement(client, plans[1])
    assert (await client.get(GANGPLACEMENTS, "job-train", namespace)).status.message == "first"


async def test_a_placement_without_owner_goes_with_the_last_pod_and_one_with_an_owner_only_gives_its_room_back(
    client: Client, namespace: str
) -> None:
    await write_placement(client, placement(namespace, owned=False))
    keeps = placement(namespace, held=True)
    kept = msgspec.structs.replace(
        keeps,
        metadata=msgspec.structs.replace(keeps.metadata, name="job-kept"),
        spec=msgspec.structs.replace(keeps.spec, job_uid=f"other-{namespace}"),
    )
    await write_placement(client, kept)

    async def gone() -> bool:
        try:
            await client.get(GANGPLACEMENTS, "job-train", namespace)
        except NotFound:
            return True
        return False

    async def vacated() -> bool:
        return not (await client.get(GANGPLACEMENTS, "job-kept", namespace)).status.reservations

    async with planning(client, World(RULES)):
        await eventually(gone)
        await eventually(vacated)
