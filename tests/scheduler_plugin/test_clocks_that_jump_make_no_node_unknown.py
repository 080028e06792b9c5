"""Agents' silence is told from what is heard: neither our clock nor theirs, set wrong, stops a cluster for long."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.api import reasons
from outrider.api.gpunode import GPUNode
from outrider.api.times import rfc3339
from scheduler_plugin.app import WallClock
from scheduler_plugin.cluster.sightings import Sightings
from scheduler_plugin.cluster.world import World
from tests.scheduler_plugin.builders import NOW, RULES, make_gpunode, make_node

HOUR = 3600.0
STALE = RULES.stale_seconds


class Cluster:
    """A World with one node, whose agent and whose own clock go as they like; ``time`` is the true one."""

    def __init__(self, *, ours: float = 0.0, theirs: float = 0.0) -> None:
        self.time, self.ours, self.theirs = NOW, ours, theirs
        self.world = World(RULES, clock=self.clock)
        self.world.on_node(None, make_node("n0"))
        self._before: GPUNode | None = None

    def clock(self) -> float:
        return self.time + self.ours

    def agent_writes(self) -> None:
        new = make_gpunode("n0")
        new = msgspec.structs.replace(
            new, status=msgspec.structs.replace(new.status, observed_at=rfc3339(self.time + self.theirs))
        )
        self.world.on_gpunode(self._before, new)
        self._before = new

    def list_again(self) -> None:
        self.world.on_gpunode(self._before, self._before)

    def refusal(self) -> str:
        self.world.refresh()
        return self.world.snapshot.nodes["n0"].refusal(self.clock())


def test_an_agent_is_silent_after_so_long_whatever_is_listed_again() -> None:
    cluster = Cluster()
    cluster.agent_writes()
    cluster.time += STALE - 1
    cluster.list_again()
    assert not cluster.refusal()
    cluster.time += 2
    cluster.list_again()
    assert cluster.refusal() == reasons.NODE_UNKNOWN_HEALTH


@pytest.mark.parametrize("theirs", [-HOUR, HOUR, -86400.0 * 365])
def test_an_agent_whose_clock_is_wrong_is_believed_from_its_second_word_on(theirs: float) -> None:
    cluster = Cluster(theirs=theirs)
    cluster.agent_writes()
    cluster.time += 30
    cluster.agent_writes()
    assert not cluster.refusal()
    cluster.time += STALE + 1
    assert cluster.refusal() == reasons.NODE_UNKNOWN_HEALTH


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 86400.0])
def test_our_clock_may_be_set_and_nothing_changes_but_the_end_of_each_silence(jump: float) -> None:
    cluster = Cluster()
    cluster.agent_writes()
    cluster.time += 100
    cluster.ours += jump
    cluster.world.clock_was_set(jump)
    assert not cluster.refusal()
    cluster.time += STALE - 99
    assert cluster.refusal() == reasons.NODE_UNKNOWN_HEALTH
    cluster.agent_writes()
    cluster.time += 30
    cluster.agent_writes()
    assert not cluster.refusal()


def test_a_clock_set_before_we_started_is_of_no_weight_once_agents_have_spoken_twice() -> None:
    cluster = Cluster(ours=HOUR)
    cluster.agent_writes()
    assert cluster.refusal() == reasons.NODE_UNKNOWN_HEALTH
    cluster.time += 30
    cluster.agent_writes()
    assert not cluster.refusal()


def test_one_late_word_of_an_agent_is_no_sign_that_it_lives() -> None:
    cluster = Cluster()
    cluster.agent_writes()
    cluster.time += 60
    last_word = cluster.time
    cluster.time += 10 * STALE  # the API server was away; the list then tells what the agent wrote before it died
    now, cluster.time = cluster.time, last_word
    observed = rfc3339(cluster.time)
    cluster.time = now
    new = make_gpunode("n0")
    cluster.world.on_gpunode(
        None, msgspec.structs.replace(new, status=msgspec.structs.replace(new.status, observed_at=observed))
    )
    assert cluster.refusal() == reasons.NODE_UNKNOWN_HEALTH


@given(st.lists(st.tuples(st.text(max_size=30) | st.just(rfc3339(NOW)), st.floats(0, 1e10)), max_size=20))
def test_no_word_counts_for_longer_than_if_it_had_come_just_now(words: list[tuple[str, float]]) -> None:
    sightings = Sightings(STALE)
    latest = 0.0
    for told, now in words:
        latest = max(latest, now)
        sightings.note("n0", told, now)
        assert sightings.at("n0") <= latest


def test_a_clock_that_is_set_is_noticed_once_and_drift_is_not() -> None:
    clock = WallClock(1000.0, 10.0)
    assert clock.jump(1001.0005, 11.0) == 0.0
    assert clock.jump(4602.0, 12.0) == pytest.approx(3600, abs=0.01)
    assert clock.jump(4603.0, 13.0) == 0.0
    assert clock.jump(1004.0, 14.0) == pytest.approx(-3600)
