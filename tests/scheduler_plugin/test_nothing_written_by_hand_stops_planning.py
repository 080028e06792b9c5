"""Whatever people write into placements, pods, nodes and jobs: each gang is planned still, and nothing held twice."""

import random
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.api.core import Job, Node, Pod
from outrider.api.gangplacement import (
    GangPlacement,
    GangPlacementStatus,
    PlacementState,
    RankAssignment,
    Reservation,
    Victim,
)
from outrider.api.gpunode import GPUNode
from outrider.api.times import parse_rfc3339, rfc3339
from outrider.workloads import BadQuantity
from scheduler_plugin.cluster.reservations import reserved, seats
from scheduler_plugin.cluster.world import World
from scheduler_plugin.extender import frames
from scheduler_plugin.extender.mirror import Mirror, Sender
from scheduler_plugin.planner.acceptance import accepted, problem
from scheduler_plugin.planner.advance import advance
from scheduler_plugin.planner.case import expired
from scheduler_plugin.planner.ledger import ledger, stands
from scheduler_plugin.planner.preempting import Losses
from scheduler_plugin.rules import DomainSpares, Rules
from tests.scheduler_plugin.builders import (
    NOW,
    RULES,
    gang_pods,
    make_gpunode,
    make_job,
    make_node,
    make_placement,
    make_pod,
    make_world,
    pinned_to,
)

EAGER: Final = Rules(
    RULES.levels,
    gang_preemption=True,
    reserving_gangs=2,
    domain_spares=(DomainSpares(RULES.levels[-1].name, nodes=1),),
)
Thing = Node | GPUNode | Pod | GangPlacement | Job
NODES: Final = ["n0", "n1", "n2", "gone", ""]
JOBS: Final = ["a", "b", "c"]
TIMES: Final = [
    None,
    "",
    "noon",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "9999-12-31T23:59:59Z",
    *(rfc3339(NOW + seconds) for seconds in (-1e9, -7200, -61, -1, 0, 1, 30, 7200, 86_500)),
]
AMOUNTS: Final = ["0", "1", "8", "-1", "1e30", "9Ei", "500m", "much", "", "1000000", "64"]


class Hand:
    """Writes objects from a seed, as careless people would."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - test data

    def one(self, *choices: Any) -> Any:
        """Return one of the choices."""
        return self._random.choice(choices)

    def some(self, choices: list[Any], most: int = 3) -> list[Any]:
        """Return a few of the choices, some of them twice."""
        return [self._random.choice(choices) for _ in range(self._random.randint(0, most))]

    def amounts(self) -> dict[str, str]:
        """Return amounts of resources."""
        names = ["nvidia.com/gpu", "cpu", "memory", "nvidia.com/mig-1g.5gb", "odd"]
        return {name: self.one(*AMOUNTS) for name in self.some(names, 2)}

    def rank(self) -> RankAssignment:
        """Return a rank of any gang on any node."""
        job, rank = self.one(*JOBS), self.one(0, 0, 1, 2, 7, 2**31)
        uid = self.one(f"uid-{job}-{rank}", f"uid-{job}-{rank}", "", "uid-nobody")
        return RankAssignment(rank=rank, pod=f"{job}-{rank}", pod_uid=uid, node=self.one(*NODES), gpus=self.one(0, 8))

    def reservation(self) -> Reservation:
        """Return a reservation whose lists need not match."""
        return Reservation(requests=self.amounts(), ranks=self.some([0, 0, 1, 2, 3, -1]), nodes=self.some(NODES))

    def victim(self) -> Victim:
        """Return a victim that need not be one."""
        job = self.one(*JOBS)
        return Victim(
            job_kind="Job",
            job_name=job,
            job_uid=f"job-{job}",
            namespace="ml",
            priority=self.one(0, 5),
            pods=self.some([f"{job}-0", f"{job}-1"]),
            pod_uids=self.some([f"uid-{job}-0", f"uid-{job}-1"]),
        )

    def placement(self) -> GangPlacement:
        """Return a placement, of the planner or bent."""
        sound = make_placement(self.one(*JOBS), {})
        status = GangPlacementStatus(
            state=self.one(*PlacementState),
            revision=self.one(0, 1, 2**62),
            ranks=[self.rank() for _ in range(self._random.randint(0, 3))],
            spares=self.some(NODES),
            spares_kept=self.one(True, False),
            expires_at=self.one(*TIMES),
            queued_at=self.one(*TIMES),
            retry_at=self.one(*TIMES),
            priority=self.one(None, 0, 5, -(2**31)),
            reservations=[self.reservation() for _ in range(self._random.randint(0, 2))],
            preempting=[self.victim() for _ in range(self._random.randint(0, 1))],
            attempts=self.one(0, 1, 2**62),
        )
        copy, namespace = self.one("", "", "", "-copy"), self.one("ml", "ml", "ml", "elsewhere")
        meta = msgspec.structs.replace(
            sound.metadata,
            name=sound.metadata.name + copy,
            uid=f"{sound.metadata.uid}{copy}-{namespace}",
            namespace=namespace,
            creation_timestamp=self.one(*TIMES),
        )
        spec = msgspec.structs.replace(sound.spec, job_uid=self.one(sound.spec.job_uid, f"job-{self.one(*JOBS)}"))
        return msgspec.structs.replace(sound, metadata=meta, spec=spec, status=status)

    def pod(self) -> Pod:
        """Return a pod of a gang or of none."""
        job, rank = self.one("", *JOBS), self.one(0, 1, 2)
        node = self.one("", "", "", *NODES)
        pod = make_pod(
            f"{job}-{rank}",
            job=job,
            rank=self.one(None, rank),
            gpus=self.one(0, 1, 8, 8, 8),
            cpu=self.one("1", "1", *AMOUNTS),
            node=node,
            gated=self.one(True, True, False),
            phase=self.one("Pending", "Pending", "Running", "Succeeded", "Failed"),
            refused=self.one(True, False),
            age_seconds=self.one(-7200, 0, 3, 60, 1e9),
            affinity=self.one({}, {}, {}, pinned_to("n0"), {"podAffinity": 3}, {"nodeAffinity": {"x": []}}),
        )
        spec = msgspec.structs.replace(pod.spec, priority=self.one(None, 0, 10))
        status = msgspec.structs.replace(pod.status, nominated_node_name=self.one("", "", *NODES))
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=self.one(None, None, None, rfc3339(NOW)))
        return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=status)

    def node(self) -> Node:
        """Return a node."""
        node = make_node(
            self.one("n0", "n1", "n2"),
            self.one("leaf-0", "leaf-1", ""),
            self.one("spine-0", "leaf-0"),
            gpus=self.one(0, 8, 8, 10**6),
            cpu=self.one("64", "64", *AMOUNTS),
            cordoned=self.one(False, False, True),
        )
        return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, uid=self.one("u0", "u1")))

    def job(self) -> Job:
        """Return a job."""
        job = make_job(self.one(*JOBS), self.one(0, 1, 2, 3, -1, 2**31))
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, completions=self.one(None, 2, -7)))

    def thing(self) -> Thing:
        """Return any object."""
        thing: Thing = self.one(self.node, self.pod, self.pod, self.pod, self.placement, self.placement, self.job)()
        return thing

    def history(self) -> list[tuple[Thing, bool]]:
        """Return objects, each with whether it is deleted."""
        sound = [make_node(name) for name in ("n0", "n1", "n2")] + [make_gpunode("n0")]
        jobs = [make_job(name, 2) for name in self.some(JOBS)]
        pods = [pod for name in self.some(JOBS) for pod in gang_pods(name, 2)]
        odd = [(self.thing(), self.one(True, False, False)) for _ in range(self._random.randint(1, 20))]
        return [*((thing, False) for thing in (*sound, *jobs, *pods)), *odd]


def deliver(world: World, old: Thing | None, new: Thing | None) -> None:
    takers: dict[type[Thing], Any] = {
        Node: world.on_node,
        GPUNode: world.on_gpunode,
        Pod: world.on_pod,
        GangPlacement: world.on_placement,
        Job: world.on_job,
    }
    takers[type(new or old)](old, new)  # type: ignore[index]


def played(history: list[tuple[Thing, bool]], world: World) -> list[Thing]:
    """Let the world live through a history; return what is there at its end."""
    there: dict[tuple[str, str], Thing] = {}
    for thing, deleted in history:
        key = type(thing).__name__, f"{thing.metadata.namespace}/{thing.metadata.name}"
        old = there.pop(key, None)
        if deleted and old is None:
            continue
        if not deleted:
            there[key] = thing
        deliver(world, old, None if deleted else thing)
        world.refresh()
    return list(there.values())


HANDS: Final = st.integers(0, 2**64).map(Hand)


@settings(max_examples=200, deadline=None)
@given(HANDS)
def test_any_history_of_bent_objects_leaves_what_a_new_planner_would_see(hand: Hand) -> None:
    world = World(EAGER, clock=lambda: NOW)
    there = played(hand.history(), world)
    kept, fresh = world.publish(), make_world(*there, rules=EAGER).publish()
    assert kept.plans == fresh.plans
    assert kept.kept == fresh.kept
    for name in {*kept.nodes, *fresh.nodes}:
        assert kept.nodes[name] == fresh.nodes[name], name
    assert +kept.leaf_gpus == +fresh.leaf_gpus  # type: ignore[operator]


@settings(max_examples=200, deadline=None)
@given(HANDS)
def test_every_gang_has_a_next_step_whatever_was_written(hand: Hand) -> None:
    world = World(EAGER, clock=lambda: NOW)
    played(hand.history(), world)
    snapshot = world.publish()
    for gang in world.gangs():
        try:
            step = advance(gang, snapshot, EAGER, NOW, Losses())
        except BadQuantity:
            continue
        msgspec.json.decode(msgspec.json.encode(step.status), type=GangPlacementStatus | None)
        assert {node for _, nodes in step.release for node in nodes} <= {*snapshot.nodes, *NODES}
    assert sum(stands(ledger(world.gangs()).values()).values()) >= 0
    assert set(world.unsettled(NOW)) <= {gang.job.uid for gang in world.gangs()}
    for placement, orphaned in world.placements():
        accepted(placement, problem(placement, orphaned=orphaned), NOW)


@settings(max_examples=100, deadline=None)
@given(HANDS)
def test_the_extender_can_be_told_of_everything(hand: Hand) -> None:
    world, mirror = World(EAGER, clock=lambda: NOW), Mirror()
    played(hand.history(), world)
    for update in Sender().everything(world.publish()):
        body = frames.frame(frames.Changes(update))[4:]
        told = frames.TO_EXTENDER.decode(body)
        assert isinstance(told, frames.Changes)
        mirror.apply(told.update)
    assert mirror.snapshot.nodes.keys() == world.snapshot.nodes.keys()


@given(HANDS)
def test_what_is_held_is_held_on_the_nodes_of_the_seats(hand: Hand) -> None:
    status = hand.placement().status
    assert set(reserved(status)) == set(seats(status).values())


def test_a_rank_that_someone_gave_two_nodes_leaves_nothing_behind() -> None:
    twice = Reservation(requests={"cpu": "1"}, ranks=[0, 0], nodes=["n0", "n1"])
    waiting = make_placement("train", {}, state=PlacementState.WAITING)
    bent = msgspec.structs.replace(waiting, status=msgspec.structs.replace(waiting.status, reservations=[twice]))
    world = make_world(make_node("n0"), make_node("n1"), *gang_pods("train", 1), bent)
    world.on_placement(bent, None)
    assert [dict(view.holds) for view in world.publish().nodes.values()] == [{}, {}]
    world.on_node(make_node("n0"), make_node("n0", gpus=4))
    assert world.publish().nodes["n0"].gpus == 4000


def test_of_two_placements_of_one_job_the_older_holds_and_the_other_takes_over_when_it_goes() -> None:
    def made(second: int, node: str) -> GangPlacement:
        first = make_placement("train", {0: node})
        meta = msgspec.structs.replace(first.metadata, uid=node, name=node, creation_timestamp=rfc3339(NOW + second))
        return msgspec.structs.replace(first, metadata=meta)

    def spare(world: World) -> list[int]:
        nodes = world.publish().nodes
        return [nodes[name].spare_gpus for name in ("n0", "n1")]

    nodes, pods = [make_node("n0"), make_node("n1")], gang_pods("train", 1)
    old, copy = made(0, "n0"), made(1, "n1")
    for order in ([old, copy], [copy, old]):
        world = make_world(*nodes, *pods, *order)
        assert spare(world) == [0, 8000]
        world.on_placement(old, None)
        assert spare(world) == [8000, 0]
        world.on_placement(copy, None)
        assert spare(world) == [8000, 8000]


def test_a_placement_in_another_namespace_says_nothing_of_a_gang() -> None:
    placement = make_placement("train", {0: "n0"})
    meta = msgspec.structs.replace(placement.metadata, namespace="elsewhere")
    strange = msgspec.structs.replace(placement, metadata=meta)
    world = make_world(make_node("n0"), strange, *gang_pods("train", 1))
    assert world.publish().plan_of("job-train") is None
    assert world.publish().nodes["n0"].spare_gpus == 8000
    world.on_placement(None, placement)
    assert world.publish().nodes["n0"].spare_gpus == 0


def test_a_plan_that_names_a_pod_of_another_gang_holds_nothing_for_it() -> None:
    stolen = RankAssignment(rank=0, pod="other-0", pod_uid="uid-other-0", node="n0", gpus=8)
    placement = make_placement("train", {})
    bent = msgspec.structs.replace(placement, status=msgspec.structs.replace(placement.status, ranks=[stolen]))
    world = make_world(make_node("n0"), bent, *gang_pods("other", 1), *gang_pods("train", 1))
    assert world.publish().nodes["n0"].holds == {}


def test_a_placement_that_becomes_another_jobs_lets_the_first_ones_nodes_go() -> None:
    first = make_placement("train", {0: "n0"})
    second = msgspec.structs.replace(first, spec=msgspec.structs.replace(first.spec, job_uid="job-other"))
    world = make_world(make_node("n0"), first, *gang_pods("train", 1))
    world.on_placement(first, second)
    assert world.publish().nodes["n0"].holds == {}


def test_pods_that_ask_for_more_than_there_can_be_do_not_end_the_extender() -> None:
    hungry = [make_pod(name, node="n0", cpu="9Ei") for name in ("x", "y")]
    view = make_world(make_node("n0"), *hungry).snapshot.nodes["n0"]
    assert view.free["cpu"] < -(2**63)
    assert len(frames.frame(frames.Changes(Sender().everything(make_world(make_node("n0"), *hungry).snapshot)[1]))) > 4


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_could_not_be_written_again_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="in no year"):
        parse_rfc3339(text)


@pytest.mark.parametrize("hours", [1, 5, 23])
def test_a_clock_that_was_set_back_makes_no_gang_rest_or_hold_a_bad_plan_for_hours(hours: int) -> None:
    ahead = rfc3339(NOW + hours * 3600)
    resting = msgspec.structs.replace(GangPlacementStatus(), attempts=3, retry_at=ahead)
    waiting = msgspec.structs.replace(make_placement("train", {}), status=resting)
    pods, job = gang_pods("train", 2), make_job("train", 2)
    world = make_world(make_node("n0"), make_node("n1"), *pods, job, waiting)
    gang = world.gang("job-train")
    assert gang is not None
    assert advance(gang, world.publish(), RULES, NOW).outcome == "planned"
    planned = make_placement("train", {0: "n0", 1: "n1"})
    assert not expired(planned.status, NOW, RULES)
    assert expired(msgspec.structs.replace(planned.status, expires_at=ahead), NOW, RULES)
