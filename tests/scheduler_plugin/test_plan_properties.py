from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.api.core import Taint
from outrider.api.gpunode import Verdict
from outrider.topology import NO_ASK, TopologyAsk, depth_of, levels_from
from scheduler_plugin.cluster.members import Member, member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.gang import Gang, Placement
from scheduler_plugin.placing.plan import plan
from scheduler_plugin.rules import Rules
from tests.scheduler_plugin.builders import (
    NOW,
    gang_pods,
    make_gpunode,
    make_node,
    make_placement,
    make_pod,
    make_snapshot,
)

RULES = Rules(levels_from("nvidia"))
LEVELS = ["spine", "leaf", "nvlink-domain", "node"]
CLIQUE = "nvidia.com/gpu.clique"


class Drawn(msgspec.Struct, frozen=True):
    spine: str
    leaf: str
    clique: str
    gpus: int
    used: int
    verdict: Verdict
    score: int
    obstacle: str


NODES = st.builds(
    Drawn,
    spine=st.sampled_from(["s0", "s1", ""]),
    leaf=st.sampled_from(["l0", "l1", "l2", "s0", ""]),
    clique=st.sampled_from(["", "", "c0", "c1", "l0", "n3"]),
    gpus=st.sampled_from([8, 8, 8, 8, 4, 0]),
    used=st.sampled_from([0, 0, 0, 2, 8]),
    verdict=st.sampled_from([Verdict.NONE, Verdict.NONE, Verdict.WATCH, Verdict.NO_NEW_WORK, Verdict.RESET]),
    score=st.integers(0, 100),
    obstacle=st.sampled_from(["", "", "", "", "taint", "cordon", "label"]),
)
CLUSTERS = st.lists(NODES, min_size=1, max_size=16)
SIZES = st.integers(1, 9)
GPUS = st.sampled_from([1, 2, 4, 8, 8])


def objects_of(drawn: Sequence[Drawn]) -> list[object]:
    found: list[object] = []
    for number, one in enumerate(drawn):
        name = f"n{number}"
        labels = {CLIQUE: one.clique} if one.clique else {}
        labels |= {} if one.obstacle == "label" else {"pool": "train"}
        taints = [Taint(key="dedicated", value="others")] if one.obstacle == "taint" else []
        cordoned = one.obstacle == "cordon"
        found.append(
            make_node(name, one.leaf, one.spine, gpus=one.gpus, labels=labels, taints=taints, cordoned=cordoned)
        )
        found.append(make_gpunode(name, verdict=one.verdict, score=one.score))
        found.append(make_pod(f"used-{number}", gpus=min(one.used, one.gpus), node=name, phase="Running"))
    return found


def members_of(count: int, gpus: int, job: str = "train") -> tuple[Member, ...]:
    pods = gang_pods(job, count, gpus=gpus, node_selector={"pool": "train"})
    return tuple(member(pod, rank) for rank, pod in enumerate(pods))


def asked(count: int, gpus: int, ask: TopologyAsk = NO_ASK, job: str = "train") -> Gang:
    return Gang(f"job-{job}", members_of(count, gpus, job), ask=ask)


def slots(drawn: Sequence[Drawn], snapshot: Snapshot, gpus: int) -> dict[str, int]:
    """Return the pods that each node takes, by rules that a person would apply."""
    well = (Verdict.NONE, Verdict.WATCH)
    return {
        f"n{number}": max(snapshot.nodes[f"n{number}"].spare_gpus, 0) // (gpus * 1000)
        for number, one in enumerate(drawn)
        if one.verdict in well and not one.obstacle and one.gpus
    }


def by_domain(counts: dict[str, int], snapshot: Snapshot, level: str) -> dict[object, int]:
    depth = depth_of(snapshot.levels, level)
    assert depth is not None
    rooms: Counter[object] = Counter()
    for name, count in counts.items():
        rooms[snapshot.nodes[name].place.domain(depth)] += count
    return rooms


def domains(names: Sequence[str], snapshot: Snapshot, level: str) -> list[object]:
    depth = depth_of(snapshot.levels, level)
    assert depth is not None
    return [snapshot.nodes[name].place.domain(depth) for name in names]


def in_rank_order(result: Placement, gang: Gang) -> list[str]:
    return [result.nodes[one.uid] for one in sorted(gang.members, key=lambda one: one.rank)]


def expect_sound(result: Placement, gang: Gang, drawn: Sequence[Drawn], snapshot: Snapshot) -> None:
    assert result.nodes.keys() == {one.uid for one in gang.members}
    asked_of: defaultdict[str, int] = defaultdict(int)
    for one in gang.members:
        asked_of[result.nodes[one.uid]] += one.gpus
    for name, amount in asked_of.items():
        node = drawn[int(name[1:])]
        assert amount <= snapshot.nodes[name].spare_gpus
        assert not node.obstacle
        if amount:
            assert node.verdict in (Verdict.NONE, Verdict.WATCH)
    assert not set(result.spares) & set(result.nodes.values())


@settings(max_examples=150, deadline=None)
@given(CLUSTERS, SIZES, GPUS)
def test_a_gang_is_whole_where_there_is_room_and_nothing_of_it_is_placed_where_there_is_none(
    drawn: list[Drawn], count: int, gpus: int
) -> None:
    snapshot = make_snapshot(*objects_of(drawn), rules=RULES)
    gang = asked(count, gpus)
    result = plan(gang, snapshot, 1, NOW)
    assert isinstance(result, Placement) == (sum(slots(drawn, snapshot, gpus).values()) >= count)
    if isinstance(result, Placement):
        expect_sound(result, gang, drawn, snapshot)


@settings(max_examples=100, deadline=None)
@given(CLUSTERS, SIZES, GPUS, st.randoms(use_true_random=False))
def test_the_plan_for_a_cluster_is_always_the_same_in_whatever_order_it_was_learned(
    drawn: list[Drawn], count: int, gpus: int, random: object
) -> None:
    objects = objects_of(drawn)
    gang = asked(count, gpus, TopologyAsk(segment_pods=2, segment_level="leaf"))
    first = plan(gang, make_snapshot(*objects, rules=RULES), 1, NOW)
    random.shuffle(objects)  # type: ignore[attr-defined]  # hypothesis types its randoms loosely
    assert plan(gang, make_snapshot(*objects, rules=RULES), 1, NOW) == first


@settings(max_examples=150, deadline=None)
@given(CLUSTERS, SIZES, GPUS, st.sampled_from(LEVELS))
def test_a_gang_never_leaves_its_required_domain_and_gets_one_wherever_one_has_the_room(
    drawn: list[Drawn], count: int, gpus: int, level: str
) -> None:
    snapshot = make_snapshot(*objects_of(drawn), rules=RULES)
    gang = asked(count, gpus, TopologyAsk(required_level=level))
    result = plan(gang, snapshot, 1, NOW)
    rooms = by_domain(slots(drawn, snapshot, gpus), snapshot, level)
    assert isinstance(result, Placement) == (max(rooms.values(), default=0) >= count)
    if isinstance(result, Placement):
        expect_sound(result, gang, drawn, snapshot)
        assert len(set(domains(list(result.nodes.values()), snapshot, level))) == 1


@settings(max_examples=150, deadline=None)
@given(CLUSTERS, SIZES, GPUS, st.integers(2, 4), st.sampled_from(LEVELS), st.sampled_from(["", "spine", "leaf"]))
def test_required_segments_stay_together_and_are_placed_wherever_they_can_be(
    drawn: list[Drawn], count: int, gpus: int, size: int, level: str, top: str
) -> None:
    snapshot = make_snapshot(*objects_of(drawn), rules=RULES)
    gang = asked(count, gpus, TopologyAsk(top, "", size, level, segment_required=True))
    result = plan(gang, snapshot, 1, NOW)
    counts = slots(drawn, snapshot, gpus)
    outer: dict[object, dict[str, int]] = defaultdict(dict) if top else {"": counts}
    for name, room in counts.items() if top else ():
        outer[domains([name], snapshot, top)[0]][name] = room
    fits = any(_segments_fit(by_domain(inside, snapshot, level), count, size) for inside in outer.values())
    assert isinstance(result, Placement) == fits
    if isinstance(result, Placement):
        expect_sound(result, gang, drawn, snapshot)
        names = in_rank_order(result, gang)
        for start in range(0, count, size):
            assert len(set(domains(names[start : start + size], snapshot, level))) == 1
        assert not top or len(set(domains(names, snapshot, top))) == 1


def _segments_fit(rooms: dict[object, int], count: int, size: int) -> bool:
    whole, rest = divmod(count, size)
    able = sum(room // size for room in rooms.values())
    return able > whole or (able == whole and (not rest or any(room % size >= rest for room in rooms.values())))


@settings(max_examples=100, deadline=None)
@given(CLUSTERS, SIZES, GPUS, st.integers(2, 4), st.sampled_from(LEVELS))
def test_segments_that_are_only_a_wish_never_keep_a_gang_waiting(
    drawn: list[Drawn], count: int, gpus: int, size: int, level: str
) -> None:
    snapshot = make_snapshot(*objects_of(drawn), rules=RULES)
    gang = asked(count, gpus, TopologyAsk(segment_pods=size, segment_level=level))
    result = plan(gang, snapshot, 1, NOW)
    assert isinstance(result, Placement) == (sum(slots(drawn, snapshot, gpus).values()) >= count)
    if isinstance(result, Placement):
        expect_sound(result, gang, drawn, snapshot)


@settings(max_examples=100, deadline=None)
@given(CLUSTERS, st.lists(st.sampled_from([0, 1, 4, 8]), min_size=1, max_size=8), st.sampled_from(["", *LEVELS[:2]]))
def test_gangs_of_several_kinds_are_sound_and_stay_in_their_domain(
    drawn: list[Drawn], gpus: list[int], level: str
) -> None:
    snapshot = make_snapshot(*objects_of(drawn), rules=RULES)
    made = [members_of(rank + 1, amount)[rank] for rank, amount in enumerate(gpus)]
    gang = Gang("job-train", tuple(made), ask=TopologyAsk(required_level=level))
    result = plan(gang, snapshot, 1, NOW)
    if isinstance(result, Placement):
        expect_sound(result, gang, drawn, snapshot)
        assert not level or len(set(domains(list(result.nodes.values()), snapshot, level))) == 1
    elif not level:
        whole_nodes = sum(count for count in slots(drawn, snapshot, 8).values())
        assert whole_nodes < len(gpus)  # else each had a node of its own


@settings(max_examples=100, deadline=None)
@given(CLUSTERS, st.lists(st.integers(0, 3), min_size=2, max_size=8), st.sampled_from(["spine", "leaf"]))
def test_parts_that_the_job_itself_names_stay_together(drawn: list[Drawn], parts: list[int], level: str) -> None:
    snapshot = make_snapshot(*objects_of(drawn), rules=RULES)
    made = (msgspec.structs.replace(one, segment=parts[one.rank]) for one in members_of(len(parts), 8))
    gang = Gang("job-train", tuple(made), ask=TopologyAsk(segment_level=level, segment_required=True))
    result = plan(gang, snapshot, 1, NOW)
    if isinstance(result, Placement):
        expect_sound(result, gang, drawn, snapshot)
        for part in set(parts):
            names = [result.nodes[one.uid] for one in gang.members if one.segment == part]
            assert len(set(domains(names, snapshot, level))) == 1


@settings(max_examples=60, deadline=None)
@given(CLUSTERS, st.lists(st.tuples(st.integers(1, 4), GPUS), min_size=1, max_size=5))
def test_no_gpu_is_ever_planned_for_two_gangs(drawn: list[Drawn], gangs: list[tuple[int, int]]) -> None:
    objects = objects_of(drawn)
    for number, (count, gpus) in enumerate(gangs):
        job = f"job{number}"
        result = plan(asked(count, gpus, job=job), make_snapshot(*objects, rules=RULES), 1, NOW)
        if isinstance(result, Placement):
            ranks = {rank: result.nodes[f"uid-{job}-{rank}"] for rank in range(count)}
            objects += [*gang_pods(job, count, gpus=gpus), make_placement(job, ranks)]
    for view in make_snapshot(*objects, rules=RULES).nodes.values():
        assert view.spare_gpus >= 0


@settings(max_examples=150, deadline=None)
@given(CLUSTERS, SIZES)
def test_no_other_set_of_domains_is_smaller(drawn: list[Drawn], count: int) -> None:
    snapshot = make_snapshot(*objects_of(drawn), rules=RULES)
    gang = asked(count, 8)
    result = plan(gang, snapshot, 1, NOW)
    if isinstance(result, Placement):
        counts = slots(drawn, snapshot, 8)
        names = list(result.nodes.values())
        spines = set(domains(names, snapshot, "spine"))
        assert len(spines) == _fewest(by_domain(counts, snapshot, "spine"), count)
        best = min(
            _fewest(by_domain(inside, snapshot, "leaf"), count)
            for some in combinations(by_domain(counts, snapshot, "spine"), len(spines))
            if sum((inside := {n: c for n, c in counts.items() if domains([n], snapshot, "spine")[0] in some}).values())
            >= count
        )
        assert len(set(domains(names, snapshot, "leaf"))) == best


def _fewest(rooms: dict[object, int], need: int) -> int:
    ordered = sorted(rooms.values(), reverse=True)
    return next(number for number in range(1, len(ordered) + 1) if sum(ordered[:number]) >= need)


@pytest.mark.parametrize("level", ["", "cluster-wide", "leaf/", "LEAF"])
def test_a_required_level_that_does_not_exist_is_refused_at_once_with_those_that_do(level: str) -> None:
    gang = asked(1, 8, TopologyAsk(required_level=level))
    result = plan(gang, make_snapshot(make_node("n0", labels={"pool": "train"}), rules=RULES), 1, NOW)
    if level:
        assert "use one of region, zone, core, spine, leaf, nvlink-domain, node" in getattr(result, "message", "")
    else:
        assert isinstance(result, Placement)
