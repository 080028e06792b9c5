"""Nodes kept free as spares: of each domain as configured, and of each gang whose policy keeps them. Pure.

New gangs pass them by; ranks that replace others may use those of a domain, and a gang's own are for that gang. They
are lent meanwhile: a pod of lower priority, of no gang, may run there, and kube-scheduler evicts it for the rank that
comes (its own preemption: the rank has the higher priority and is pinned there).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from outrider.topology import Levels, depth_of
from outrider.topology.domains import Path, natural, order
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.rules import DomainSpares


class Kept(msgspec.Struct, frozen=True):
    """Why a node is kept: for one gang by its UID, else (empty) for any gang of its domain.

    Pods of no gang may borrow it while their priority is below ``borrowers_below``.
    """

    gang: str = ""
    borrowers_below: int = 0


class Keeper(msgspec.Struct, frozen=True):
    """A gang that keeps its spares: nodes that its plan names, its priority, its UID."""

    gang: str
    priority: int
    nodes: tuple[str, ...]


class Spares:
    """The nodes that are kept, up to date with little work: only domains in which a node changed are looked at.

    ``borrowers_below`` is the priority from which no pod borrows a domain's spare.
    """

    def __init__(self, levels: Levels, rules: Iterable[DomainSpares], borrowers_below: int = 0) -> None:
        known = ((rule, depth_of(levels, rule.level)) for rule in rules)
        self._rules = [(rule, depth) for rule, depth in known if depth is not None]
        self._of_domains = Kept("", borrowers_below)
        self._members: defaultdict[tuple[int, Path], set[str]] = defaultdict(set)  # by rule and domain
        self._chosen: dict[tuple[int, Path], tuple[str, ...]] = {}
        self._bars: dict[tuple[int, Path], tuple[object, ...] | None] = {}  # key of the last chosen; none: too few
        self._ranks: dict[str, tuple[object, ...]] = {}
        self._due: set[tuple[int, Path]] = set()
        self._keepers: dict[str, Kept] = {}
        self._asked: tuple[Keeper, ...] = ()
        self._named: frozenset[str] = frozenset()
        self._same = False  # whether nothing has happened since, so that ``_kept`` holds
        self._kept: dict[str, Kept] = {}

    def changed(self, old: NodeView | None, new: NodeView | None) -> None:
        """Take a change of a node. Most are none here: its agent was heard again, or what runs there stays alike."""
        if old is not None and new is not None and _standing(old) == _standing(new) and new.name not in self._named:
            return
        self._same = False
        self._rank(old, new)
        stays = old is not None and new is not None and (old.place, old.gpus) == (new.place, new.gpus)
        for view in (old, new):
            for place in self._places(view):
                if stays and new is not None and self._indifferent(place, new):
                    continue
                self._due.add(place)
                if view is new and new is not None:
                    self._members[place].add(new.name)
                elif old is not None:
                    self._members[place].discard(old.name)

    def _rank(self, old: NodeView | None, new: NodeView | None) -> None:
        if new is None and old is not None:
            self._ranks.pop(old.name, None)
        elif new is not None and (old is None or old.place != new.place):
            self._ranks[new.name] = _last_first(new)

    def _indifferent(self, place: tuple[int, Path], view: NodeView) -> bool:
        """Return whether the choice is the same whatever has just changed there."""
        if place not in self._chosen or view.name in self._chosen[place]:
            return False
        if view.name in self._keepers or not _spare(view):
            return True
        bar = self._bars[place]
        return bar is not None and self._key(view) > bar

    def _key(self, view: NodeView) -> tuple[object, ...]:
        """Return a sort key: what is lent least, then the last in the network, since gangs fill it from the first."""
        return view.gpus - view.free_gpus, self._ranks[view.name]

    def kept(self, nodes: Mapping[str, NodeView], keepers: Iterable[Keeper]) -> dict[str, Kept]:
        """Return the nodes that are kept free now: the same object as long as nothing has changed."""
        asked = tuple(keepers)
        if not self._same or asked != self._asked:
            self._asked, self._named = asked, frozenset(name for keeper in asked for name in keeper.nodes)
            self._kept, self._same = self._anew(nodes), True
        return self._kept

    def _anew(self, nodes: Mapping[str, NodeView]) -> dict[str, Kept]:
        own = {
            name: Kept(keeper.gang, keeper.priority)
            for keeper in self._asked
            for name in keeper.nodes
            if name in nodes and not _of_gangs(nodes[name], keeper.gang)
        }
        for name in own.keys() ^ self._keepers.keys():
            self._due.update(self._places(nodes.get(name)))
        self._keepers = own
        for place in self._due:
            self._choose(place, nodes)
        self._due.clear()
        return dict.fromkeys((name for names in self._chosen.values() for name in names), self._of_domains) | own

    def _places(self, view: NodeView | None) -> list[tuple[int, Path]]:
        if view is None or view.gpus <= 0:
            return []
        return [(position, view.place.domain(depth)) for position, (_, depth) in enumerate(self._rules)]

    def _choose(self, place: tuple[int, Path], nodes: Mapping[str, NodeView]) -> None:
        rule, _ = self._rules[place[0]]
        views = [nodes[name] for name in self._members.get(place, ()) if name in nodes]
        wanted = int(max(rule.nodes, -(-len(views) * rule.percent // 100)))
        free = [view for view in views if view.name not in self._keepers and _spare(view)]
        chosen = sorted(free, key=self._key)[:wanted]
        self._chosen[place] = tuple(view.name for view in chosen)
        last = self._key(chosen[-1]) if chosen else ()
        self._bars[place] = last if len(chosen) == wanted else None


def _standing(view: NodeView) -> tuple[object, ...]:
    """Return all that the choice of a domain's spares depends on."""
    return view.place, view.gpus, view.free_gpus, _spare(view)


def _spare(view: NodeView) -> bool:
    """Return whether a node could stand in for another: sound, and nothing of a gang is there or comes."""
    sound = not (view.judgement.refusal or view.cordoned or view.closure or view.suspect)
    return sound and not _of_gangs(view, "")


def _of_gangs(view: NodeView, but: str) -> bool:
    return any(uid not in ("", but) for uid in (*view.uses, *view.holds))


def _last_first(view: NodeView) -> tuple[object, ...]:
    """Return a sort key by which the last in the network is first."""
    place = tuple(tuple((-number, text) for number, text in part) for part in order(view.place.near))
    return place, tuple((-number, text) for number, text in natural(view.name))


def called_in(nodes: Mapping[str, NodeView], names: Iterable[str], priority: int) -> dict[str, NodeView]:
    """Return the nodes as they are once those named have lost the borrowers below the priority."""
    changed = dict(nodes)
    for name in names:
        view = nodes.get(name)
        if view is not None:
            changed[name] = without_borrowers(view, priority)
    return changed


def without_borrowers(view: NodeView, priority: int) -> NodeView:
    """Return the node as it is once the pods of no gang below the priority have left it."""
    leaving = [one for one in view.guests if one.there and not one.gang and one.priority < priority]
    if not leaving:
        return view
    free = dict(view.free)
    for one in leaving:
        for name, amount in one.asked.items():
            free[name] = free.get(name, 0) + amount
    gone = {one.uid for one in leaving}
    back = sum(amount for name, amount in free.items() if name in view.gpu_room)
    return msgspec.structs.replace(
        view,
        free=free,
        free_gpus=back,
        spare_gpus=view.spare_gpus + back - view.free_gpus,
        guests=tuple(one for one in view.guests if one.uid not in gone),
    )
