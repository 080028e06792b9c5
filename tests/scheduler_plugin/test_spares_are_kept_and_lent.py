"""Spare nodes of domains and of gangs: new gangs leave them free, small pods borrow them, replacements get them."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.api import reasons
from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacement
from outrider.topology import TopologyAsk
from scheduler_plugin.cluster.members import Member, member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.world import World
from scheduler_plugin.config import Config
from scheduler_plugin.extender.decide import decide
from scheduler_plugin.extender.preempt import preempt
from scheduler_plugin.extender.prioritize import prioritize
from scheduler_plugin.extender.wire import MetaPod, MetaVictims
from scheduler_plugin.placing.gang import Gang, Placement, Refusal
from scheduler_plugin.placing.plan import plan
from scheduler_plugin.placing.replacing import replace
from scheduler_plugin.placing.spares import worn
from scheduler_plugin.rules import DomainSpares, Rules
from tests.scheduler_plugin.builders import (
    NOW,
    RULES,
    gang_pods,
    make_gpunode,
    make_node,
    make_placement,
    make_pod,
    make_snapshot,
)


def rules(*spares: DomainSpares, borrowers_below: int = 0) -> Rules:
    return msgspec.structs.replace(RULES, domain_spares=spares, borrowers_below=borrowers_below)


ONE_PER_LEAF = DomainSpares("leaf", nodes=1)


def leaf(number: int, count: int) -> list[object]:
    return [make_node(f"l{number}-n{index}", f"leaf-{number}") for index in range(count)]


def of_priority(priority: int, pods: Sequence[Pod]) -> list[Pod]:
    specs = [msgspec.structs.replace(pod.spec, priority=priority) for pod in pods]
    return [msgspec.structs.replace(pod, spec=spec) for pod, spec in zip(pods, specs, strict=True)]


def single(name: str, priority: int, node: str = "", gpus: int = 1) -> Pod:
    [pod] = of_priority(priority, [make_pod(name, node=node, gpus=gpus, phase="Running" if node else "Pending")])
    return pod


def members(count: int, priority: int = 0) -> tuple[Member, ...]:
    return tuple(member(pod, rank) for rank, pod in enumerate(of_priority(priority, gang_pods("train", count))))


def nodes_of(result: Placement | Refusal) -> set[str]:
    return set(result.nodes.values()) if isinstance(result, Placement) else set()


def test_new_gangs_leave_a_spare_node_in_every_leaf() -> None:
    snapshot = make_snapshot(*leaf(0, 3), *leaf(1, 3), rules=rules(ONE_PER_LEAF))
    assert set(snapshot.kept) == {"l0-n2", "l1-n2"}
    assert nodes_of(plan(Gang("job-train", members(4)), snapshot, 0, NOW)) == {"l0-n0", "l0-n1", "l1-n0", "l1-n1"}
    refused = plan(Gang("job-train", members(5)), snapshot, 0, NOW)
    assert isinstance(refused, Refusal)
    assert "2 kept as a spare" in refused.message


@pytest.mark.parametrize(("percent", "kept"), [(10.0, 1), (34.0, 2), (100.0, 3), (0.0, 0)])
def test_a_percentage_is_rounded_up_to_whole_nodes(percent: float, kept: int) -> None:
    snapshot = make_snapshot(*leaf(0, 3), rules=rules(DomainSpares("leaf", percent=percent)))
    assert len(snapshot.kept) == kept


def test_a_sick_cordoned_or_busy_node_is_no_spare() -> None:
    sick = make_gpunode("l0-n2", score=0, age_seconds=1e6)
    objects = [*leaf(0, 3), make_node("l0-n3", "leaf-0", cordoned=True), make_pod("rank", job="x", node="l0-n1")]
    known = make_snapshot(*objects, sick, rules=rules(ONE_PER_LEAF))
    assert set(known.kept) <= {"l0-n0", "l0-n2"}
    assert "l0-n1" not in known.kept
    assert "l0-n3" not in known.kept


def test_a_node_without_gpus_is_no_spare_and_counts_for_none() -> None:
    snapshot = make_snapshot(make_node("cpu", "leaf-0", gpus=0), rules=rules(DomainSpares("leaf", percent=100)))
    assert snapshot.kept == {}


def test_a_rank_that_has_to_move_gets_the_spare_of_its_leaf() -> None:
    objects = [*leaf(0, 3), *leaf(1, 3), make_pod("other", job="x", node="l0-n1", phase="Running")]
    snapshot = make_snapshot(*objects, make_pod("s", job="train", node="l0-n0"), rules=rules(ONE_PER_LEAF))
    assert nodes_of(replace(Gang("job-train", members(1)), ["l0-n0"], {}, snapshot, NOW)) == {"l0-n2"}


def test_pods_below_the_priority_may_borrow_a_spare_and_take_it_last() -> None:
    snapshot = make_snapshot(*leaf(0, 2), rules=rules(ONE_PER_LEAF, borrowers_below=0))
    low, usual = single("low", -10), single("usual", 0)
    assert decide(low, ["l0-n0", "l0-n1"], snapshot, NOW).allowed == ["l0-n0", "l0-n1"]
    assert [one.score for one in prioritize(low, ["l0-n0", "l0-n1"], snapshot, NOW)][1] == 0
    decision = decide(usual, ["l0-n0", "l0-n1"], snapshot, NOW)
    assert decision.allowed == ["l0-n0"]
    assert decision.unresolvable == {"l0-n1": reasons.NODE_SPARE}


def test_no_pod_evicts_a_borrower_to_get_a_spare_that_it_may_not_have() -> None:
    snapshot = make_snapshot(*leaf(0, 1), single("low", -10, "l0-n0", 8), rules=rules(ONE_PER_LEAF))
    victims = {"l0-n0": MetaVictims([MetaPod("uid-low")], 0)}
    assert preempt(single("usual", 0), victims, snapshot, NOW) == {}


def test_a_spare_that_is_lent_is_called_in_for_a_rank_and_only_when_nothing_else_is_free() -> None:
    objects = [*leaf(0, 2), *leaf(1, 1), make_pod("s", job="train", node="l0-n0", phase="Running")]
    borrowed = [*objects, single("low", -10, "l0-n1", 8)]
    snapshot = make_snapshot(*borrowed, rules=rules(ONE_PER_LEAF))
    assert set(snapshot.kept) == {"l0-n1", "l1-n0"}
    assert nodes_of(replace(Gang("job-train", members(1)), ["l0-n0"], {}, snapshot, NOW)) == {"l1-n0"}
    strict = Gang("job-train", members(1), ask=TopologyAsk(required_level="leaf"))
    assert nodes_of(replace(strict, ["l0-n0"], {}, snapshot, NOW)) == {"l0-n1"}


def test_a_borrower_that_is_no_less_important_is_not_called_in() -> None:
    objects = [*leaf(0, 2), make_pod("s", job="train", node="l0-n0", phase="Running"), single("low", -10, "l0-n1", 8)]
    snapshot = make_snapshot(*objects, rules=rules(ONE_PER_LEAF))
    assert nodes_of(replace(Gang("job-train", members(1, -10)), ["l0-n0"], {}, snapshot, NOW)) == set()
    assert nodes_of(replace(Gang("job-train", members(1, -9)), ["l0-n0"], {}, snapshot, NOW)) == {"l0-n1"}


def keeping(job: str, node: str, spare: str, *, priority: int = 0, keeps: bool = True) -> GangPlacement:
    placement = make_placement(job, {0: node}, spares=[spare])
    status = msgspec.structs.replace(placement.status, spares_kept=keeps, priority=priority)
    return msgspec.structs.replace(placement, status=status)


def with_spare(*more: object, keeps: bool = True, priority: int = 0) -> Snapshot:
    kept = keeping("first", "l0-n0", "l0-n1", keeps=keeps, priority=priority)
    running = make_pod("first-0", job="first", rank=0, node="l0-n0", phase="Running")
    return make_snapshot(*leaf(0, 3), running, kept, *more)


def test_a_gang_whose_policy_keeps_its_spares_has_them_for_itself() -> None:
    assert len(nodes_of(plan(Gang("job-train", members(2)), with_spare(keeps=False), 0, NOW))) == 2
    assert nodes_of(plan(Gang("job-train", members(2)), with_spare(), 0, NOW)) == set()
    assert nodes_of(plan(Gang("job-train", members(1)), with_spare(), 0, NOW)) == {"l0-n2"}
    assert nodes_of(replace(Gang("job-train", members(2)), [], {}, with_spare(), NOW)) == {"l0-n2"}
    mine = Gang("job-first", members(1))
    wishes = {mine.members[0].uid: ["", "l0-n1"]}
    assert nodes_of(replace(mine, ["l0-n0"], wishes, with_spare(), NOW)) == {"l0-n1"}


def test_a_spare_of_a_gang_is_none_of_its_domain() -> None:
    kept = keeping("first", "l0-n0", "l0-n3")
    running = make_pod("first-0", job="first", rank=0, node="l0-n0", phase="Running")
    snapshot = make_snapshot(*leaf(0, 4), running, kept, rules=rules(ONE_PER_LEAF))
    assert {name: one.gang for name, one in snapshot.kept.items()} == {"l0-n3": "job-first", "l0-n2": ""}


def test_pods_of_lower_priority_than_the_gang_borrow_its_spares() -> None:
    snapshot = with_spare(priority=100)
    assert decide(single("usual", 0), ["l0-n1"], snapshot, NOW).allowed == ["l0-n1"]
    assert decide(single("equal", 100), ["l0-n1"], snapshot, NOW).allowed == []


def test_a_spare_that_is_lent_stays_on_record_and_one_that_another_gang_took_does_not() -> None:
    status = keeping("first", "l0-n0", "l0-n1", priority=10).status
    status = msgspec.structs.replace(status, ranks=[msgspec.structs.replace(one, gpus=8) for one in status.ranks])
    assert not worn(status, with_spare(priority=10), NOW)
    assert not worn(status, with_spare(single("low", 0, "l0-n1", 8), priority=10), NOW)
    assert worn(status, with_spare(single("high", 10, "l0-n1", 8), priority=10), NOW)
    taken = make_pod("second-0", job="second", rank=0, node="l0-n1", phase="Running")
    assert worn(status, with_spare(taken, priority=10), NOW)
    assert worn(status, with_spare(single("low", 0, "l0-n1", 8), priority=10, keeps=False), NOW)


def test_settings_that_name_no_level_are_refused_with_the_levels_there_are() -> None:
    with pytest.raises(ValueError, match="domainSpares: no level 'pod' here: use one of region, zone"):
        Config(domain_spares=[DomainSpares("pod", nodes=1)])
    assert Config(domain_spares=[ONE_PER_LEAF]).rules().domain_spares == (ONE_PER_LEAF,)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 8), st.booleans()), min_size=1, max_size=12),
    st.integers(0, 3),
    st.integers(1, 6),
)
def test_a_new_gang_never_takes_a_spare_and_no_more_are_kept_than_asked(
    drawn: list[tuple[int, int, bool]], wanted: int, size: int
) -> None:
    objects: list[object] = []
    for index, (number, used, of_gang) in enumerate(drawn):
        objects.append(make_node(f"n{index}", f"leaf-{number}"))
        job = f"job{index}" if of_gang else ""
        objects.append(make_pod(f"u-{index}", gpus=used, job=job, node=f"n{index}", phase="Running"))
    snapshot = make_snapshot(*objects, rules=rules(DomainSpares("leaf", nodes=wanted)))
    for number in range(3):
        assert sum(snapshot.nodes[name].place.path[-1] == f"leaf-{number}" for name in snapshot.kept) <= wanted
    assert not nodes_of(plan(Gang("job-train", members(size)), snapshot, 2, NOW)) & set(snapshot.kept)


EVENTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.sampled_from(["add", "drop", "fill", "sick"])))


@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_what_is_kept_after_many_changes_is_what_would_be_kept_from_the_start(
    events: list[tuple[int, int, str]],
) -> None:
    settled = rules(DomainSpares("leaf", nodes=1), DomainSpares("spine", percent=30))
    world, present = World(settled), dict[str, object]()
    for number, one, what in events:
        name = f"n{number}"
        node, pod, health = (
            make_node(name, f"leaf-{one}"),
            make_pod(f"p{number}", node=name),
            make_gpunode(name, score=0),
        )
        match what:
            case "add":
                world.on_node(None, node)
                present[name] = node
            case "drop":
                world.on_node(node, None)
                present.pop(name, None)
            case "fill":
                world.on_pod(None, pod)
                present[f"pod-{name}"] = pod
            case "sick":
                world.on_gpunode(None, health)
                present[f"health-{name}"] = health
        world.refresh()
    assert world.publish().kept == make_snapshot(*present.values(), rules=settled).kept
