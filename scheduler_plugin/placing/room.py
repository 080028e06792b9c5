"""How many pods of each kind fit on which nodes, by everything that kube-scheduler and health would hold against it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from outrider.api.core import Toleration
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.checks import Checks
from scheduler_plugin.placing.constraints import selects, untolerated


class Room:
    """Room for one gang's members on one snapshot; ``use`` takes from it, so it belongs to one plan only.

    ``tolerated`` are suspicions that refuse nothing (see Checks).
    """

    def __init__(
        self,
        snapshot: Snapshot,
        job_uid: str,
        members: Sequence[Member],
        excluded: frozenset[str],
        now: float,
        tolerated: Collection[str] = (),
    ) -> None:
        kinds: defaultdict[tuple[object, ...], list[Member]] = defaultdict(list)
        self._checks = Checks(snapshot, members, tolerated)
        for one in members:
            kinds[self._checks.kind(one)].append(one)
        self.kinds = list(kinds.values())
        self._shapes = {one.uid: shape for shape, kind in kinds.items() for one in kind}
        self._free: dict[str, dict[str, int]] = {}
        self._snapshot, self._job_uid = snapshot, job_uid
        self._eligible = {
            shape: {
                view.name: view
                for view in snapshot.nodes.values()
                if view.name not in excluded
                and eligible(view, kind[0], now)
                and not self._checks.against(view, kind[0])
            }
            for shape, kind in kinds.items()
        }

    @property
    def intertwined(self) -> bool:
        """True where members decide about each other's nodes, so that counting slots is not enough."""
        return self._checks.peers.intertwined

    def slots(self) -> list[dict[str, int]]:
        """Return for each kind of member how many fit on each node, nodes with no room left out."""
        found = []
        for kind in self.kinds:
            counts = (
                (view.name, self._count(view, kind[0])) for view in self._eligible[self._shapes[kind[0].uid]].values()
            )
            found.append({name: count for name, count in counts if count > 0})
        return found

    def fitting(self, one: Member) -> Iterator[NodeView]:
        """Yield the nodes that have room for the member."""
        return (view for view in self._eligible[self._shapes[one.uid]].values() if self._fits(one, view))

    def on(self, name: str, one: Member) -> NodeView | None:
        """Return the node of that name if it has room for the member."""
        view = self._eligible[self._shapes[one.uid]].get(name)
        return view if view is not None and self._fits(one, view) else None

    def use(self, view: NodeView, one: Member) -> None:
        """Take the member's requests from the node."""
        room = self._room(view)
        for name, amount in one.requests.items():
            room[name] = room.get(name, 0) - amount
        if self._checks.peers.matter:
            self._checks.peers.add(one, view)

    def first_fit(self, members: Sequence[Member], names: Iterable[str]) -> dict[str, str] | None:
        """Return a node for each member by pod UID, each on the first node with room; None where one has none.

        What was taken on the way is given back in that case.
        """
        allowed = [self._snapshot.nodes[name] for name in names]
        before = {view.name: dict(self._room(view)) for view in allowed}
        nodes: dict[str, str] = {}
        for one in members:
            able = self._eligible[self._shapes[one.uid]]
            view = next((view for view in allowed if view.name in able and self._fits(one, view)), None)
            if view is None:
                self._give_back(members, nodes, before)
                return None
            nodes[one.uid] = view.name
            self.use(view, one)
        return nodes

    def _give_back(
        self, members: Sequence[Member], nodes: Mapping[str, str], before: Mapping[str, dict[str, int]]
    ) -> None:
        self._free |= before
        if self._checks.peers.matter:
            for one in members:
                if one.uid in nodes:
                    self._checks.peers.remove(one, self._snapshot.nodes[nodes[one.uid]])

    def _fits(self, one: Member, view: NodeView) -> bool:
        peers = self._checks.peers
        return fits(one, self._room(view)) and (not peers.matter or peers.allows(one, view))

    def _room(self, view: NodeView) -> dict[str, int]:
        if view.name not in self._free:
            self._free[view.name] = view.room(self._job_uid)
        return self._free[view.name]

    def _count(self, view: NodeView, one: Member) -> int:
        room = self._room(view)
        count = min((room.get(name, 0) // amount for name, amount in one.requests.items() if amount), default=0)
        return min(count, 1) if self._checks.peers.alone(one) else count


def eligible(view: NodeView, one: Member, now: float) -> bool:
    """Return whether the node may take the member at ``now`` (seconds since 1970), whatever is free on it."""
    if view.refusal(now) if one.gpus else view.closed(now):
        return False
    if untolerated(view.taints, one.tolerations, cordoned=view.cordoned):
        return False
    return selects(one.node_selector, one.affinity, view.name, view.labels)


def fits(one: Member, room: Mapping[str, int]) -> bool:
    """Return whether the room covers the member's requests."""
    for name, amount in one.requests.items():  # noqa: SIM110 - runs for every node, and all() costs twice as much
        if room.get(name, 0) < amount:
            return False
    return True


def usable(view: NodeView | None, tolerations: Sequence[Toleration], now: float) -> bool:
    """Return whether a planned pod can still start on the node: there, healthy, and with no taint against it."""
    if view is None or view.refusal(now):
        return False
    return untolerated(view.taints, tolerations, cordoned=view.cordoned) is None
