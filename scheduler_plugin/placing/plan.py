"""Plan a gang: all of it or nothing, close together, on healthy nodes. Pure and deterministic."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.gangplacement import RejectedAlternative
from outrider.topology.domains import Path
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.domains import Tree, natural, weakness
from scheduler_plugin.placing.explain import explain_refusal
from scheduler_plugin.placing.room import Room

_MOST_REJECTED: Final = 8  # alternatives kept for explanations


class Gang(msgspec.Struct, frozen=True):
    """Pods to place. ``excluded`` are nodes that this gang has already tried in vain."""

    job_uid: str
    members: tuple[Member, ...]
    excluded: frozenset[str] = frozenset()


class Placement(msgspec.Struct, frozen=True):
    """The nodes by pod UID, spare nodes, and what explains the choice."""

    nodes: Mapping[str, str]
    spares: tuple[str, ...] = ()
    rejected: tuple[RejectedAlternative, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """Nothing was placed; the message says what was needed and what there is."""

    message: str
    rejected: tuple[RejectedAlternative, ...] = ()


class Nearness:
    """How close a place is to those already chosen: domains shared with each of them, summed."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._shared: Counter[Path] = Counter()
        self._known: dict[Path, int] = {}
        for path in paths:
            self.add(path)

    def add(self, path: Path) -> None:
        """Take one more place into account."""
        self._shared.update(path[:depth] for depth in range(1, len(path) + 1))
        self._known.clear()

    def __call__(self, path: Path) -> int:
        """Return the nearness of a place; higher is nearer."""
        if path not in self._known:
            self._known[path] = sum(self._shared[path[:depth]] for depth in range(1, len(path) + 1))
        return self._known[path]


def plan(gang: Gang, snapshot: Snapshot, spares: int, now: float) -> Placement | Refusal:
    """Return nodes for every member and up to ``spares`` spare nodes, or a refusal, at ``now`` (seconds since 1970).

    In order: the lowest domain that holds the gang, the fewest leaves in it, the healthiest nodes, the domain that is
    left with the least room (so that whole free leaves stay whole). Ranks follow the topology.
    """
    room = Room(snapshot, gang.job_uid, gang.members, gang.excluded, now)
    tree = Tree(room.slots(), snapshot.nodes)
    needs = [len(kind) for kind in room.kinds]
    nodes = _alike(tree, needs[0], gang.members) if len(needs) == 1 else _mixed(tree, needs, gang.members, room)
    rejected = _rejected(tree, needs)
    if nodes is None:
        message = explain_refusal(gang.members, snapshot, gang.job_uid, gang.excluded, now)
        return Refusal(message, rejected)
    return Placement(nodes, _spares(room, gang.members, set(nodes.values()), snapshot, spares), rejected)


def replace(
    gang: Gang, survivors: Sequence[str], wishes: Mapping[str, Sequence[str]], snapshot: Snapshot, now: float
) -> Placement | Refusal:
    """Return nodes for members that join pods already on ``survivors`` (node names, one per pod).

    ``wishes`` by pod UID are nodes to take first, in order: the rank's last node, the spares. Then the nearest to all
    that are there. Members without room are left out: a running gang gains nothing if the others wait for them.
    """
    room = Room(snapshot, gang.job_uid, gang.members, gang.excluded, now)
    near = Nearness(snapshot.nodes[name].place.path for name in survivors if name in snapshot.nodes)
    nodes: dict[str, str] = {}
    for one in sorted(gang.members, key=lambda one: one.rank):
        view = _wished(room, one, wishes.get(one.uid, ())) or _nearest(room, one, near)
        if view is not None:
            nodes[one.uid] = view.name
            room.use(view, one)
            near.add(view.place.path)
    if nodes:
        return Placement(nodes)
    return Refusal(explain_refusal(gang.members, snapshot, gang.job_uid, gang.excluded, now))


def spares_for(gang: Gang, used: Collection[str], snapshot: Snapshot, count: int, now: float) -> tuple[str, ...]:
    """Return the nearest nodes outside ``used`` that could take the largest member now."""
    return _spares(Room(snapshot, gang.job_uid, gang.members, gang.excluded, now), gang.members, used, snapshot, count)


def _alike(tree: Tree, need: int, members: Sequence[Member]) -> dict[str, str] | None:
    domains = next(tree.holding([need]), None)
    if domains is None:
        return None
    seats = [path[-1] for path, count in tree.best(domains, need) for _ in range(count)]
    ranked = sorted(members, key=lambda one: one.rank)
    return {one.uid: name for one, name in zip(ranked, seats, strict=True)}


def _mixed(tree: Tree, needs: Sequence[int], members: Sequence[Member], room: Room) -> dict[str, str] | None:
    """Place members that ask for different things: in rank order, each on the first node with room."""
    ranked = sorted(members, key=lambda one: one.rank)
    domains = (domain for level in tree.holding(needs) for domain in level)
    tries = (room.first_fit(ranked, tree.under(domain)) for domain in domains)
    return next((nodes for nodes in tries if nodes is not None), None)


def _wished(room: Room, one: Member, wishes: Iterable[str]) -> NodeView | None:
    return next((view for name in wishes if (view := room.on(name, one))), None)


def _nearest(room: Room, one: Member, near: Nearness) -> NodeView | None:
    return min(room.fitting(one), key=lambda view: _closest(view, near), default=None)


def _spares(
    room: Room, members: Sequence[Member], used: Collection[str], snapshot: Snapshot, count: int
) -> tuple[str, ...]:
    largest = max(members, key=lambda one: one.gpus)
    near = Nearness(snapshot.nodes[name].place.path for name in used if name in snapshot.nodes)
    free = [view for view in room.fitting(largest) if view.name not in used]
    return tuple(view.name for view in sorted(free, key=lambda view: _closest(view, near))[:count])


def _closest(view: NodeView, near: Nearness) -> tuple[object, ...]:
    return -near(view.place.path), weakness(view), view.free_gpus, natural(view.name)


def _rejected(tree: Tree, needs: Sequence[int]) -> tuple[RejectedAlternative, ...]:
    need = sum(needs)
    return tuple(
        RejectedAlternative(domain=label(path), reason=f"room for {room} of {need} pods")
        for path, room in tree.most(needs, _MOST_REJECTED)
    )


def label(path: Path) -> str:
    """Return a domain's name for people: its named parts, or the whole cluster."""
    return "/".join(part for part in path if part and not part.startswith("?")) or "cluster"
