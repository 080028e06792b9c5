import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.api.core import Node, Pod
from outrider.api.gangplacement import GangPlacement, PlacementState
from outrider.api.gpunode import GPUNode, Verdict
from outrider.api.meta import ObjectMeta
from outrider.api.trainingpolicy import TrainingPolicy, TrainingPolicySpec
from scheduler_plugin.cluster.world import Change, World
from tests.scheduler_plugin.builders import (
    NOW,
    RULES,
    gang_pods,
    make_gpunode,
    make_node,
    make_placement,
    make_pod,
    make_world,
)

Thing = Node | GPUNode | Pod | GangPlacement
NAMES = ["n0", "n1"]
THINGS = st.one_of(
    st.builds(make_node, st.sampled_from(NAMES), st.sampled_from(["leaf-0", "leaf-1"]), gpus=st.sampled_from([0, 8])),
    st.builds(make_gpunode, st.sampled_from(NAMES), verdict=st.sampled_from([Verdict.NONE, Verdict.RESET])),
    st.builds(
        make_pod,
        st.sampled_from(["train-0", "train-1"]),
        job=st.just("train"),
        node=st.sampled_from(["", *NAMES]),
        gpus=st.sampled_from([1, 4]),
        phase=st.sampled_from(["Pending", "Running", "Succeeded"]),
    ),
    st.builds(
        make_placement,
        st.just("train"),
        st.dictionaries(st.integers(0, 1), st.sampled_from(NAMES), max_size=2),
        state=st.sampled_from(list(PlacementState)),
    ),
)
EVENTS = st.lists(st.tuples(THINGS, st.booleans()), max_size=25)


def key(thing: Thing) -> tuple[str, str]:
    return type(thing).__name__, thing.metadata.name


def deliver(world: World, old: Thing | None, new: Thing | None) -> None:
    match new or old:
        case Node():
            world.on_node(old, new)  # type: ignore[arg-type]
        case GPUNode():
            world.on_gpunode(old, new)  # type: ignore[arg-type]
        case Pod():
            world.on_pod(old, new)  # type: ignore[arg-type]
        case _:
            world.on_placement(old, new)  # type: ignore[arg-type]


@settings(max_examples=300, deadline=None)
@given(EVENTS)
def test_any_history_of_changes_ends_in_the_sums_of_what_is_left(events: list[tuple[Thing, bool]]) -> None:
    world, there = World(RULES, clock=lambda: NOW), dict[tuple[str, str], Thing]()
    for thing, deleted in events:
        old = there.pop(key(thing), None)
        if not deleted:
            there[key(thing)] = thing
        deliver(world, old, None if deleted else thing)
        world.publish()
    fresh = make_world(*there.values()).snapshot
    kept = world.publish()
    assert kept.nodes == fresh.nodes
    assert kept.plans == fresh.plans
    assert {leaf: gpus for leaf, gpus in kept.leaf_gpus.items() if gpus} == {
        leaf: gpus for leaf, gpus in fresh.leaf_gpus.items() if gpus
    }


def version(pod: Pod, number: int) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, resource_version=str(number)))


def test_a_watch_that_repeats_older_news_undoes_nothing() -> None:
    gated, bound = make_pod("train-0", job="train"), make_pod("train-0", job="train", node="n0")
    world = make_world(make_node("n0"), version(gated, 9))
    world.on_pod(None, version(bound, 11))
    world.on_pod(version(gated, 9), version(gated, 10))
    assert world.publish().nodes["n0"].free_gpus == 0


@pytest.mark.parametrize("written", [True, False])
def test_a_plan_holds_its_nodes_while_it_is_written_whatever_the_watch_says(written: bool) -> None:
    def stored(placement: GangPlacement, number: int) -> GangPlacement:
        meta = msgspec.structs.replace(placement.metadata, resource_version=str(number))
        return msgspec.structs.replace(placement, metadata=meta)

    wanted = make_placement("train", {0: "n0"})
    world = make_world(make_node("n0"), *gang_pods("train", 1))
    world.claim(msgspec.structs.replace(wanted, metadata=msgspec.structs.replace(wanted.metadata, uid="")))
    assert world.publish().nodes["n0"].spare_gpus == 0
    world.on_placement(None, stored(make_placement("train", {}, state=PlacementState.WAITING), 5))
    assert world.publish().nodes["n0"].spare_gpus == 0
    world.settle("job-train", stored(wanted, 6) if written else None)
    assert world.publish().nodes["n0"].spare_gpus == (0 if written else 8000)
    assert world.publish().plans["job-train"].planned is written


def test_a_new_plan_that_could_not_be_written_leaves_the_old_one() -> None:
    world = make_world(make_node("n0"), make_node("n1"), *gang_pods("train", 1), make_placement("train", {0: "n0"}))
    world.claim(make_placement("train", {0: "n1"}))
    world.settle("job-train", None)
    nodes = world.publish().nodes
    assert (nodes["n0"].spare_gpus, nodes["n1"].spare_gpus) == (0, 8000)


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    first = make_pod("train-0", job="train", node="n0")
    second = msgspec.structs.replace(first, metadata=msgspec.structs.replace(first.metadata, uid="uid-2"))
    world = make_world(make_node("n0"), first)
    world.on_pod(first, second)
    assert world.publish().nodes["n0"].free_gpus == 0
    world.on_pod(second, None)
    assert world.publish().nodes["n0"].free_gpus == 8000


def test_only_what_changed_is_told() -> None:
    told: list[Change] = []
    world = World(RULES, clock=lambda: NOW, on_nodes=told.extend)
    world.on_node(None, make_node("n0"))
    world.on_node(None, make_node("n1"))
    world.publish()
    told.clear()
    world.on_node(make_node("n0"), make_node("n0"))
    world.publish()
    assert not told
    world.on_pod(None, make_pod("busy", node="n1"))
    world.publish()
    assert [(old and old.free_gpus, new and new.free_gpus) for old, new in told] == [(8000, 0)]


def test_what_was_published_never_changes_and_what_was_not_is_changed_where_it_lies() -> None:
    world = make_world(make_node("n0"), make_node("n1"))
    kept = world.publish()
    world.on_pod(None, make_pod("busy", node="n0"))
    world.refresh()
    assert (kept.nodes["n0"].free_gpus, world.snapshot.nodes["n0"].free_gpus) == (8000, 0)
    assert not any(kept.leaf_gpus.values())
    live = world.snapshot.nodes
    world.on_pod(None, make_pod("busy-too", node="n1"))
    world.refresh()
    assert world.snapshot.nodes is live, "nobody keeps it, so nothing is copied"


def test_health_that_is_seen_again_is_no_news_to_planners_but_after_a_silence_it_is() -> None:
    told: list[Change] = []
    now = [NOW]
    world = World(RULES, clock=lambda: now[-1], on_nodes=told.extend)
    world.on_node(None, make_node("n0"))
    seen = make_gpunode("n0", age_seconds=30.0)
    world.on_gpunode(None, seen)
    world.refresh()
    told.clear()
    again = make_gpunode("n0", age_seconds=20.0)
    world.on_gpunode(seen, again)
    world.refresh()
    assert not told
    assert world.snapshot.nodes["n0"].usable_until == NOW - 20.0 + RULES.stale_seconds
    now.append(NOW + RULES.stale_seconds)
    world.on_gpunode(again, make_gpunode("n0", age_seconds=-RULES.stale_seconds))
    world.refresh()
    assert len(told) == 1


def test_every_view_that_was_made_anew_is_told_by_name() -> None:
    told: list[set[str]] = []
    world = World(RULES, clock=lambda: NOW, on_views=lambda names: told.append(set(names)))
    world.on_node(None, make_node("n0"))
    world.on_node(None, make_node("n1"))
    world.refresh()
    world.on_gpunode(None, make_gpunode("n1"))
    world.refresh()
    world.refresh()
    world.on_placement(None, make_placement("train", {}))
    world.refresh()
    assert told == [{"n0", "n1"}, {"n1"}, set()]


def test_a_publish_is_asked_for_once_until_it_is_done() -> None:
    asked: list[int] = []
    world = World(RULES, clock=lambda: NOW, wake=lambda: asked.append(1))
    world.on_node(None, make_node("n0"))
    world.on_node(None, make_node("n1"))
    world.on_placement(None, make_placement("train", {}))
    assert len(asked) == 1
    world.publish()
    world.on_placement(None, make_placement("other", {}))
    world.on_node(None, make_node("n2"))
    assert len(asked) == 2


def test_gangs_come_by_priority_then_age_and_leave_once_placed() -> None:
    def of_priority(pod: Pod, priority: int) -> Pod:
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))

    young, old = gang_pods("young", 1, age_seconds=5), gang_pods("old", 1, age_seconds=50)
    urgent = [of_priority(pod, 100) for pod in gang_pods("urgent", 1, age_seconds=1)]
    running = gang_pods("running", 1, node="n0")
    placed = make_placement("running", {0: "n0"}, state=PlacementState.PLACED)
    world = make_world(make_node("n0"), *young, *old, *urgent, *running, placed)
    assert world.unsettled(NOW) == ["job-urgent", "job-old", "job-young"]


def test_a_pod_with_a_quantity_that_is_none_takes_nothing_and_breaks_nothing() -> None:
    bad = make_pod("bad", cpu="much", node="n0")
    assert make_world(make_node("n0"), bad).snapshot.nodes["n0"].free_gpus == 8000


def test_a_gang_gets_as_many_spares_as_its_policy_names() -> None:
    world = make_world(*gang_pods("train", 2))
    policy = TrainingPolicy(metadata=ObjectMeta(name="more"), spec=TrainingPolicySpec(spares=3))
    world.on_policy(None, policy)
    gang = world.gang("job-train")
    assert gang is not None
    assert gang.policy.spares == 3
    world.on_policy(policy, None)
    assert world.gang("job-train") == msgspec.structs.replace(gang, policy=TrainingPolicySpec())
