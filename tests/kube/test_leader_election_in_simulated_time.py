# ruff: noqa: ASYNC110 - in simulated time polling costs nothing and reads as it is
import asyncio
import contextlib
import time

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.kube.leader import LeaderElector
from tests.kube.leases import LeaseClient, LeaseStore

pytestmark = pytest.mark.looptime


class Candidate:
    """An elector whose work notes when it runs."""

    def __init__(self, store: LeaseStore, name: str, *, unwind_seconds: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        self.client = LeaseClient(store)
        self.name = name
        self._store = store
        self.started = 0
        self.wall_clock_jump = 0.0
        self.stopped_at = 0.0
        self._unwind_seconds = unwind_seconds
        self.elector = LeaderElector(
            self.client,  # type: ignore[arg-type] # only the verbs that an election uses
            "test",
            "ns",
            name,
            clock=loop.time,
            wall_clock=lambda: time.time() + self.wall_clock_jump,
        )
        self.task = asyncio.create_task(self.elector.run(self.work))

    @property
    def working(self) -> bool:
        return self in self._store.working

    async def work(self) -> None:
        self._store.working.add(self)
        self.started += 1
        assert self._store.working == {self}, "two leaders"
        try:
            await asyncio.sleep(1e9)
        finally:
            await asyncio.sleep(self._unwind_seconds)
            self._store.working.discard(self)
            self.stopped_at = asyncio.get_running_loop().time()

    async def stop(self) -> None:
        """Shut down; raises where two worked at the same time."""
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


async def test_one_of_two_candidates_works_and_keeps_working() -> None:
    store = LeaseStore()
    first = Candidate(store, "a")
    await asyncio.sleep(1)
    second = Candidate(store, "b")
    await asyncio.sleep(600)
    assert (first.started, second.started) == (1, 0)
    assert first.elector.is_leader
    assert not second.elector.is_leader
    await first.stop()
    await second.stop()


async def test_shutdown_ends_the_work_first_and_hands_the_lease_over_at_once() -> None:
    store = LeaseStore()
    first = Candidate(store, "a", unwind_seconds=3)
    await asyncio.sleep(1)
    second = Candidate(store, "b")
    await asyncio.sleep(10)
    began = asyncio.get_running_loop().time()
    await first.stop()
    assert not first.working
    while not second.working:
        await asyncio.sleep(0.1)
    assert asyncio.get_running_loop().time() - began < 3 + 3
    assert store.lease is not None
    assert store.lease.spec.holder_identity == "b"
    assert store.lease.spec.lease_transitions == 2
    await second.stop()


@pytest.mark.parametrize("fault", ["reachable", "hangs", "loses_answers"])
async def test_work_ends_before_another_may_take_the_lease(fault: str) -> None:
    store = LeaseStore()
    first = Candidate(store, "a", unwind_seconds=4)
    await asyncio.sleep(1)
    second = Candidate(store, "b")
    await asyncio.sleep(30)
    setattr(first.client, fault, fault != "reachable")
    if fault == "loses_answers":  # renewals still arrive: the lease stays ours, and we can't know it
        await asyncio.sleep(60)
        assert not first.elector.is_leader
        assert first.started == 1
        assert not first.working
    else:
        while not second.working:
            await asyncio.sleep(0.1)
        assert not first.working
        assert second.started == 1
    setattr(first.client, fault, fault == "reachable")
    await first.stop()
    await second.stop()


async def test_a_short_outage_goes_unnoticed_by_the_work() -> None:
    store = LeaseStore()
    only = Candidate(store, "a")
    await asyncio.sleep(30)
    only.client.reachable = False
    await asyncio.sleep(6)
    only.client.reachable = True
    await asyncio.sleep(60)
    assert only.started == 1
    assert only.working
    await only.stop()


async def test_a_leader_that_lost_the_api_server_leads_again_after_it_returns() -> None:
    store = LeaseStore()
    only = Candidate(store, "a")
    await asyncio.sleep(30)
    only.client.reachable = False
    await asyncio.sleep(60)
    assert not only.working
    only.client.reachable = True
    await asyncio.sleep(5)
    assert only.working
    assert only.started == 2
    await only.stop()


async def test_a_restarted_process_of_the_same_name_need_not_wait() -> None:
    store = LeaseStore()
    killed = Candidate(store, "a")
    await asyncio.sleep(10)
    killed.client.reachable = False  # it dies without a word to the server
    await killed.stop()
    reborn = Candidate(store, "a")
    await asyncio.sleep(1)
    assert reborn.working
    await reborn.stop()


async def test_a_lease_deleted_by_hand_does_not_make_two_leaders() -> None:
    store = LeaseStore()
    first = Candidate(store, "a")
    await asyncio.sleep(1)
    second = Candidate(store, "b")
    await asyncio.sleep(10)
    store.lease = None
    await asyncio.sleep(100)
    assert first.working or second.working
    await first.stop()
    await second.stop()


async def test_wall_clock_jumps_change_nothing() -> None:
    store = LeaseStore()
    first = Candidate(store, "a")
    await asyncio.sleep(1)
    second = Candidate(store, "b")
    await asyncio.sleep(10)
    for jump in (-1e6, 1e6, 0.0):
        first.wall_clock_jump = jump
        second.wall_clock_jump = -jump
        await asyncio.sleep(100)
        assert (first.started, second.started) == (1, 0)
    await first.stop()
    await second.stop()


async def test_a_lease_edited_into_nonsense_is_waited_for_not_believed() -> None:
    store = LeaseStore()
    first = Candidate(store, "a")
    await asyncio.sleep(10)
    assert store.lease is not None
    await first.stop()
    first = Candidate(store, "a")
    await asyncio.sleep(5)
    spec = store.lease.spec.__class__(holder_identity="stranger", lease_duration_seconds=0)
    store.put(store.lease.__class__(metadata=store.lease.metadata, spec=spec))
    await asyncio.sleep(14)
    assert not first.working
    await asyncio.sleep(6)
    assert first.working
    await first.stop()


async def test_a_failure_of_the_work_releases_the_lease_and_is_raised() -> None:
    store = LeaseStore()

    async def broken() -> None:
        raise RuntimeError("a bug")

    elector = LeaderElector(
        LeaseClient(store),  # type: ignore[arg-type] # only the verbs that an election uses
        "test",
        "ns",
        "a",
    )
    with pytest.raises(RuntimeError, match="a bug"):
        await elector.run(broken)
    assert store.lease is not None
    assert store.lease.spec.holder_identity == ""


def test_durations_that_leave_no_time_to_stop_are_refused() -> None:
    with pytest.raises(ValueError, match="renew_deadline_seconds < lease_seconds"):
        LeaderElector(LeaseClient(LeaseStore()), "l", "n", "a", lease_seconds=5, renew_deadline_seconds=5)  # type: ignore[arg-type]


_FAULTS = st.lists(
    st.tuples(
        st.integers(0, 2),  # which candidate
        st.sampled_from(["reachable", "hangs", "loses_answers"]),
        st.floats(0.1, 25.0),  # for how long
        st.floats(0.0, 5.0),  # then quiet
    ),
    max_size=12,
)


@given(_FAULTS, st.lists(st.floats(0.001, 1.0), min_size=3, max_size=3))
@settings(max_examples=40, deadline=None)
def test_whatever_the_network_does_there_are_never_two_leaders(
    faults: list[tuple[int, str, float, float]], latencies: list[float]
) -> None:
    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        runner.run(_ordeal(faults, latencies))


async def _ordeal(faults: list[tuple[int, str, float, float]], latencies: list[float]) -> None:
    store = LeaseStore()
    candidates = [Candidate(store, name, unwind_seconds=3) for name in "abc"]
    for candidate, latency in zip(candidates, latencies, strict=True):
        candidate.client.latency_seconds = latency
    for index, fault, length, quiet in faults:
        client = candidates[index].client
        setattr(client, fault, fault != "reachable")
        await asyncio.sleep(length)
        setattr(client, fault, fault == "reachable")
        await asyncio.sleep(quiet)
    await asyncio.sleep(60)
    assert sum(candidate.working for candidate in candidates) == 1
    for candidate in candidates:
        await candidate.stop()
