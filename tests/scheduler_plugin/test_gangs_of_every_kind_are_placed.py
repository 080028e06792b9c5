"""Jobs as real controllers made them, step by step through the planner's decisions: staged ones as their pods come."""

from collections.abc import Iterator

import msgspec
import pytest

from outrider.api.core import NamedReference, Pod, PodStatus
from outrider.api.gangplacement import GangPlacement, GangPlacementSpec, GangPlacementStatus, PlacementState
from outrider.api.meta import ObjectMeta
from outrider.api.names import GANG_GATE, SCHEDULER_NAME
from outrider.api.times import rfc3339
from outrider.workloads import GangRef, is_member, stage_of
from scheduler_plugin.cluster.reservations import seats
from scheduler_plugin.cluster.world import World
from scheduler_plugin.planner.advance import Advance, advance
from tests.scheduler_plugin.builders import NOW, RULES, make_node
from tests.workloads.recorded import FILES, Recorded, name_of, read

SINGLE = {"job/plain", "statefulset/ordered"}
STAGED = {
    "jobset/depends-on",
    "jobset/exclusive",
    "jobset/in-order",
    "leaderworkerset/exclusive",
    "leaderworkerset/leader-ready",
}
NODES = [
    make_node(f"n{leaf}-{number}", leaf=f"leaf-{leaf}", labels={"type": "kwok", "kubernetes.io/os": "linux"})
    for leaf in range(4)
    for number in range(4)
]


def waiting(pod: Pod) -> Pod:
    """Return a recorded pod as it was before it had a node: gated by us, unscheduled.

    Where the leader of an exclusive job was is left out of its followers' node selectors: it goes elsewhere here.
    """
    selector = {key: value for key, value in pod.spec.node_selector.items() if "topology" not in key}
    spec = msgspec.structs.replace(
        pod.spec,
        node_name="",
        scheduler_name=SCHEDULER_NAME if is_member(pod) else "default-scheduler",
        scheduling_gates=[NamedReference(name=GANG_GATE)] if is_member(pod) else [],
        affinity={kind: rules for kind, rules in pod.spec.affinity.items() if kind != "nodeAffinity"},
        node_selector=selector,
    )
    meta = msgspec.structs.replace(pod.metadata, creation_timestamp=rfc3339(NOW - 60))
    return Pod(metadata=meta, spec=spec, status=PodStatus(phase="Pending"))


def world_with(case: Recorded) -> World:
    world = World(RULES)
    for node in NODES:
        world.on_node(None, node)
    for owner in case.known():
        world.on_job(None, owner)
    return world


def step(world: World, uid: str) -> Advance:
    world.publish()
    gang = world.gang(uid)
    assert gang is not None
    return advance(gang, world.snapshot, RULES, NOW)


def store(world: World, gang: GangRef, namespace: str, status: GangPlacementStatus, version: int) -> None:
    meta = ObjectMeta(name="placement", namespace=namespace, uid=f"p-{gang.uid}", resource_version=str(version))
    spec = GangPlacementSpec(job_kind=gang.kind, job_name=gang.name, job_uid=gang.uid, size=1)
    world.on_placement(None, GangPlacement(metadata=meta, spec=spec, status=status))


@pytest.mark.parametrize("name", [name for path in FILES if (name := name_of(path)) not in SINGLE])
def test_a_gang_of_any_kind_is_placed_whole_as_its_pods_come(name: str) -> None:
    case = read(name)
    for gang, owner, recorded in case.gangs():
        members = [pod for pod in recorded if is_member(pod)]
        if not members:
            continue
        world = world_with(case)
        nodes: set[str] = set()
        stages = sorted({stage_of(pod, owner) for pod in members})
        assert (len(stages) > 1) == (name in STAGED)
        for version, stage in enumerate(stages):
            come = [waiting(pod) for pod in members if stage_of(pod, owner) == stage]
            for pod in come:
                world.on_pod(None, pod)
            advanced = step(world, gang.uid)
            assert advanced.status is not None, advanced.message
            assert advanced.status.state is PlacementState.PLANNED, advanced.message
            assert {pod.metadata.name for pod, _ in advanced.release} >= {pod.metadata.name for pod in come}
            store(world, gang, come[0].metadata.namespace, advanced.status, version + 1)
            for pod, places in advanced.release:
                spec = msgspec.structs.replace(pod.spec, node_name=places[0], scheduling_gates=[])
                meta = msgspec.structs.replace(pod.metadata, resource_version="9999999")
                world.on_pod(pod, Pod(metadata=meta, spec=spec, status=PodStatus(phase="Running")))
                nodes.add(places[0])
        assert len(nodes) == len(members)
        settled = step(world, gang.uid)
        assert settled.status is not None
        assert settled.status.state is PlacementState.PLACED


@pytest.mark.parametrize("name", sorted(STAGED))
def test_nodes_of_pods_to_come_are_kept_from_the_start(name: str) -> None:
    plans = list(first_plans(name))
    assert plans
    for places in plans:
        assert len({*places.values()}) == len(places) == 4
        assert [places[rank] for rank in sorted(places)] == sorted(places.values()), "neighbours in rank are neighbours"


def test_child_jobs_of_an_exclusive_jobset_go_to_different_leaves_and_groups_of_an_exclusive_set_to_one() -> None:
    (jobset,) = first_plans("jobset/exclusive")
    leaves = {rank: node.partition("-")[0] for rank, node in jobset.items()}
    assert leaves[0] == leaves[1] != leaves[2] == leaves[3]
    for group in first_plans("leaderworkerset/exclusive"):
        assert len({node.partition("-")[0] for node in group.values()}) == 1


def first_plans(name: str) -> Iterator[dict[int, str]]:
    """Yield for each gang the node of every rank, those to come included, as planned for the first of its pods."""
    case = read(name)
    for gang, owner, members in case.gangs():
        world = world_with(case)
        for pod in members:
            if stage_of(pod, owner) == 0:
                world.on_pod(None, waiting(pod))
        advanced = step(world, gang.uid)
        assert advanced.status is not None
        yield {rank.rank: rank.node for rank in advanced.status.ranks} | seats(advanced.status)
