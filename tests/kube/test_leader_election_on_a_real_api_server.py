import asyncio
import itertools
import time
from pathlib import Path

import pytest

from outrider.kube.client import Client, PatchType
from outrider.kube.kinds import LEASES
from outrider.kube.leader import LeaderElector
from outrider.kube.transport import connect
from testbed.state import State
from tests.kube.api_server import frozen, kill, restart
from tests.kube.cable import cable
from tests.kube.waiting import running, until

pytestmark = pytest.mark.control_plane

LEASE_SECONDS = 4.0
DEADLINE_SECONDS = 2.5


class Candidate:
    """An elector with short times, whose work notes when it ran."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self.spans: list[list[float]] = []  # [start, end] of each time that the work ran
        self.elector = LeaderElector(
            client,
            "test",
            namespace,
            name,
            lease_seconds=LEASE_SECONDS,
            renew_deadline_seconds=DEADLINE_SECONDS,
            retry_seconds=0.4,
        )

    @property
    def working(self) -> bool:
        return bool(self.spans) and self.spans[-1][1] == 0

    async def run(self) -> None:
        await self.elector.run(self._work)

    async def _work(self) -> None:
        self.spans.append([time.monotonic(), 0])
        try:
            await asyncio.sleep(1e6)
        finally:
            self.spans[-1][1] = time.monotonic()


async def test_the_second_candidate_takes_over_when_the_first_shuts_down(client: Client, namespace: str) -> None:
    first, second = Candidate(client, namespace, "first"), Candidate(client, namespace, "second")
    async with running(second.run()):
        async with running(first.run()):
            await until(lambda: first.working or second.working)
            await asyncio.sleep(LEASE_SECONDS + 1)
            assert first.working != second.working
            leader, other = (first, second) if first.working else (second, first)
            assert leader.elector.is_leader
            assert not other.elector.is_leader
        began = time.monotonic()
        await until(lambda: second.working)
        assert time.monotonic() - began < 2  # the lease was released, not waited for
        lease = await client.get(LEASES, "test", namespace)
        assert lease.spec.holder_identity == "second"
    lease = await client.get(LEASES, "test", namespace)
    assert lease.spec.holder_identity == ""


async def test_a_leader_cut_off_stops_before_another_starts(
    client: Client, namespace: str, kubeconfig: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    async with cable(kubeconfig, config) as line, connect("t", kubeconfig=config) as remote:
        cut_off, other = Candidate(remote, namespace, "cut-off"), Candidate(client, namespace, "other")
        async with running(cut_off.run()):
            await until(lambda: cut_off.working)
            async with running(other.run()):
                await asyncio.sleep(1)
                line.refuse = True
                line.cut()
                await until(lambda: other.working)
                assert not cut_off.working
                assert cut_off.spans[0][1] < other.spans[0][0]
                line.refuse = False
                await asyncio.sleep(LEASE_SECONDS)
                assert not cut_off.working
                assert len(cut_off.spans) == len(other.spans) == 1


async def test_work_is_cancelled_before_the_lease_expires_when_the_api_server_freezes(
    client: Client, namespace: str, control_plane: State
) -> None:
    only = Candidate(client, namespace, "only")
    async with running(only.run()):
        await until(lambda: only.working)
        await asyncio.sleep(1)
        began = time.monotonic()
        with frozen(control_plane):
            await until(lambda: not only.working)
            assert time.monotonic() - began <= DEADLINE_SECONDS + 0.3 < LEASE_SECONDS
            assert not only.elector.is_leader
            await asyncio.sleep(LEASE_SECONDS)
        await until(lambda: only.working, 30)
        assert len(only.spans) == 2


async def test_a_killed_api_server_ends_the_work_in_time_and_its_return_brings_it_back(
    client: Client, namespace: str, control_plane: State
) -> None:
    only = Candidate(client, namespace, "only")
    async with running(only.run()):
        await until(lambda: only.working)
        began = time.monotonic()
        await asyncio.to_thread(kill, control_plane)
        await until(lambda: not only.working)
        assert time.monotonic() - began < LEASE_SECONDS
        await asyncio.to_thread(restart, control_plane)
        await until(lambda: only.working)


async def test_a_lease_that_somebody_annotates_or_deletes_keeps_one_leader(client: Client, namespace: str) -> None:
    first, second = Candidate(client, namespace, "first"), Candidate(client, namespace, "second")
    async with running(first.run()):
        await until(lambda: first.working)
        async with running(second.run()):
            await client.patch(LEASES, "test", {"metadata": {"annotations": {"note": "x"}}}, PatchType.MERGE, namespace)
            await asyncio.sleep(LEASE_SECONDS)
            assert [len(first.spans), len(second.spans)] == [1, 0]
            lease = await client.get(LEASES, "test", namespace)
            assert lease.metadata.annotations == {"note": "x"}
            await client.delete(LEASES, "test", namespace)
            await asyncio.sleep(LEASE_SECONDS)
            await until(lambda: first.working or second.working)
    spans = sorted([*first.spans, *second.spans])
    assert len(spans) >= 2
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
