"""Nodes that reject pods, or kill them at once, get nothing new for a while; jobs that fail everywhere blame none."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.api import reasons
from outrider.api.core import ContainerState, ContainerStatus, Pod, PodStatus, Termination
from outrider.api.times import rfc3339
from scheduler_plugin.cluster.blackholes import CRASHED, Blackholes, Failure, closure, failure_of
from scheduler_plugin.cluster.members import member
from scheduler_plugin.cluster.world import World
from scheduler_plugin.extender.decide import decide
from scheduler_plugin.placing.gang import Gang, Placement
from scheduler_plugin.placing.plan import plan
from tests.scheduler_plugin.builders import NOW, RULES, gang_pods, make_node, make_pod

MINUTE, HOUR = 60.0, 3600.0
OUT_OF = "OutOfnvidia.com/gpu"


def rejected(name: str, node: str, at: float = NOW, reason: str = "UnexpectedAdmissionError", **more: Any) -> Pod:
    """Return a pod that the kubelet turned away."""
    pod = make_pod(name, node=node, **more)
    return msgspec.structs.replace(pod, status=PodStatus(phase="Failed", reason=reason, start_time=rfc3339(at)))


def crashed(name: str, node: str, at: float = NOW, *, seconds: float = 1.0, code: int = 1, **more: Any) -> Pod:
    """Return a pod whose container ended at ``at``, after so many seconds."""
    end = Termination(exit_code=code, started_at=rfc3339(at - seconds), finished_at=rfc3339(at))
    status = ContainerStatus(state=ContainerState(terminated=end))
    failed = PodStatus(phase="Failed", container_statuses=[status], start_time=rfc3339(at - seconds))
    return msgspec.structs.replace(make_pod(name, node=node, **more), status=failed)


def world(*pods: Pod, now: float = NOW) -> World:
    known = World(RULES, clock=lambda: now)
    for name in ("n0", "n1", "n2"):
        known.on_node(None, make_node(name))
    for pod in pods:
        known.on_pod(None, pod)
    return known


def avoided(known: World, now: float = NOW) -> set[str]:
    """Return the nodes on which filter puts no single pod."""
    decision = decide(make_pod("new", gpus=1), ["n0", "n1", "n2"], known.publish(), now)
    assert {*decision.unresolvable.values()} <= {reasons.NODE_REJECTS}
    return set(decision.unresolvable)


def test_a_node_that_rejects_pod_after_pod_gets_no_more() -> None:
    two = [rejected(f"p{index}", "n0") for index in range(2)]
    assert avoided(world(*two)) == set()
    known = world(*two, rejected("p2", "n0"))
    assert avoided(known) == {"n0"}
    pods = gang_pods("train", 2)
    placed = plan(Gang("job-train", tuple(member(pod, 0) for pod in pods)), known.publish(), 1, NOW)
    assert isinstance(placed, Placement)
    assert set(placed.nodes.values()) == {"n1", "n2"}
    assert placed.spares == ()


@pytest.mark.parametrize("reason", ["UnexpectedAdmissionError", OUT_OF, "OutOfcpu", "TopologyAffinityError"])
def test_every_rejection_by_the_kubelet_counts(reason: str) -> None:
    assert avoided(world(*(rejected(f"p{index}", "n0", reason=reason) for index in range(3)))) == {"n0"}


@pytest.mark.parametrize("reason", ["Evicted", "DeadlineExceeded", "NodeLost", "Shutdown", "", "FromTheFuture"])
def test_other_ends_of_pods_say_nothing_about_the_node(reason: str) -> None:
    assert avoided(world(*(rejected(f"p{index}", "n0", reason=reason) for index in range(9)))) == set()


def test_what_was_long_ago_is_over() -> None:
    pods = [rejected(f"p{index}", "n0", NOW - 11 * MINUTE) for index in range(3)]
    assert avoided(world(*pods)) == set()
    spread = [rejected(f"p{index}", "n0", NOW - index * 9 * MINUTE) for index in range(9)]
    assert avoided(world(*spread)) == set()


def test_the_node_comes_back_by_itself() -> None:
    known = world(*(rejected(f"p{index}", "n0") for index in range(3)))
    assert avoided(known, NOW + 9 * MINUTE) == {"n0"}
    assert avoided(known, NOW + 11 * MINUTE) == set()


def failures(*minutes: float) -> list[Failure]:
    return [Failure("n0", f"job-{index}", at * MINUTE, OUT_OF) for index, at in enumerate(minutes, start=1)]


def until(known: Iterable[Failure]) -> float:
    found = closure(known)
    return found.until / MINUTE if found else 0.0


def test_a_node_that_fails_again_after_its_return_is_closed_at_once_and_longer() -> None:
    assert until(failures(1, 2, 3)) == 13
    assert until(failures(1, 2, 3, 14)) == 34
    assert until(failures(1, 2, 3, 14, 35)) == 75
    assert until(failures(1, 2, 3, 14, 35, 76)) == 136  # an hour at most
    assert until(failures(1, 2, 3, 100)) == 13  # forgiven after an hour


def test_pods_that_were_on_their_way_close_the_node_no_longer() -> None:
    assert until(failures(1, 2, 3, 4, 5, 12.9)) == 13


def test_pods_that_crash_as_they_start_count_where_several_jobs_do() -> None:
    one = [crashed(f"a-{index}", "n0", job="a", gated=False) for index in range(5)]
    assert avoided(world(*one)) == set()
    assert avoided(world(*one, crashed("b-0", "n0", job="b", gated=False))) == {"n0"}


def test_a_job_that_crashes_on_one_node_while_its_other_pods_run_blames_that_node() -> None:
    running = make_pod("a-9", job="a", node="n1", phase="Running")
    assert avoided(world(running, *(crashed(f"a-{index}", "n0", job="a") for index in range(3)))) == {"n0"}


def test_a_job_that_crashes_wherever_it_goes_blames_no_node() -> None:
    running = make_pod("a-9", job="a", node="n2", phase="Running")
    pods = [crashed(f"a-{index}-{node}", node, job="a") for node in ("n0", "n1") for index in range(5)]
    assert avoided(world(running, *pods)) == set()


def test_a_job_that_every_node_rejects_blames_none() -> None:
    pods = [rejected(f"a-{index}-{node}", node, job="a") for node in ("n0", "n1", "n2") for index in range(5)]
    assert avoided(world(*pods)) == set()
    assert avoided(world(*pods[:10])) == {"n0", "n1"}


def test_pods_sent_to_a_node_by_name_blame_it_for_nothing_alone() -> None:
    pods = [rejected(f"a-{index}", "n0", reason="NodeAffinity", job="a") for index in range(9)]
    assert avoided(world(*pods)) == set()


@pytest.mark.parametrize("kwargs", [{"seconds": 30.0}, {"code": 0}, {"seconds": -5.0}])
def test_a_program_that_ran_a_while_or_ended_well_is_no_crash(kwargs: dict[str, Any]) -> None:
    assert failure_of(crashed("a", "n0", **kwargs), NOW, alone=True) is None


def test_a_container_that_is_restarted_again_and_again_counts_once() -> None:
    known = world(make_pod("b-9", job="b", node="n1", phase="Running"))
    for restart in range(9):
        pod = crashed("b-0", "n0", NOW + restart, job="b")
        loop = msgspec.structs.replace(pod.status.container_statuses[0], restart_count=restart)
        loop = msgspec.structs.replace(loop, state=ContainerState(), last_state=loop.state)
        known.on_pod(None, msgspec.structs.replace(pod, status=PodStatus(phase="Running", container_statuses=[loop])))
    assert avoided(known) == set()


def test_the_same_is_known_after_a_restart_from_the_pods_that_the_api_lists() -> None:
    pods = [rejected(f"p{index}", "n0", NOW - index) for index in range(3)]
    again = world(*reversed(pods), now=NOW + MINUTE)
    assert avoided(world(*pods)) == avoided(again) == {"n0"}
    assert world(*pods).publish().nodes["n0"].closure == again.publish().nodes["n0"].closure


def test_pods_that_are_cleaned_away_are_not_forgotten() -> None:
    pods = [rejected(f"p{index}", "n0") for index in range(3)]
    known = world(*pods)
    for pod in pods:
        known.on_pod(pod, None)
    assert avoided(known) == {"n0"}


def test_a_node_that_is_made_anew_by_the_same_name_starts_anew() -> None:
    known = world(*(rejected(f"p{index}", "n0") for index in range(3)))
    old = make_node("n0")
    new = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, uid="other"))
    known.on_node(old, new)
    assert avoided(known) == set()


def test_a_clock_of_a_node_that_is_ahead_closes_it_no_longer_than_others() -> None:
    known = world(*(rejected(f"p{index}", "n0", NOW + 24 * HOUR) for index in range(3)))
    assert avoided(known) == {"n0"}
    assert avoided(known, NOW + 11 * MINUTE) == set()


def test_people_are_told_what_fails_there() -> None:
    found = world(*(rejected(f"p{index}", "n0", reason=OUT_OF) for index in range(3))).publish().nodes["n0"].closure
    assert found is not None
    assert found.why == "3 pods failed there within 10 min: OutOfnvidia.com/gpu"


def test_what_is_remembered_is_bounded() -> None:
    known = Blackholes()
    for index in range(10_000):
        known.note(f"p{index}", Failure(f"n{index % 7}", f"j{index}", NOW + index, OUT_OF))
    held = [known.failures(f"n{index}") for index in range(7)]
    assert max(held) <= 64
    assert sum(held) <= 4096


JOBS, NODES = st.sampled_from("abc"), st.sampled_from(["n0", "n1", "n2"])
KINDS = st.sampled_from([CRASHED, OUT_OF, "NodeAffinity"])
FAILURES = st.builds(Failure, NODES, JOBS, st.floats(1, 10 * HOUR), KINDS, st.booleans())


@given(st.lists(FAILURES, max_size=40), st.randoms())
def test_the_order_in_which_failures_become_known_does_not_matter(known: list[Failure], random: Any) -> None:
    def opinion(order: list[Failure]) -> list[object]:
        holes = Blackholes()
        for one in order:
            holes.note(str(known.index(one)), one)
        return [holes.closure(node) for node in ("n0", "n1", "n2")]

    shuffled = list(known)
    random.shuffle(shuffled)
    assert opinion(known) == opinion(shuffled)


@given(st.lists(FAILURES, max_size=40))
def test_a_node_never_stays_closed_longer_than_an_hour_after_its_last_failure(known: list[Failure]) -> None:
    found = closure(known)
    assert found is None or found.until <= max(one.at for one in known) + HOUR


@given(st.text(max_size=30), st.text(max_size=30), st.integers(), st.text(max_size=30))
def test_a_pod_of_any_content_is_no_crash(started: str, finished: str, code: int, reason: str) -> None:
    end = Termination(exit_code=code, started_at=started, finished_at=finished, reason=reason)
    status = ContainerStatus(state=ContainerState(terminated=end), last_state=ContainerState(terminated=end))
    pod = make_pod("odd", node="n0")
    odd = PodStatus(phase="Failed", reason=reason, container_statuses=[status], start_time=started)
    assert failure_of(msgspec.structs.replace(pod, status=odd), NOW, alone=True) is None or started
