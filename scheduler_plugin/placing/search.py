"""Nodes for a whole gang: alike or of several kinds, as one or in segments that stay together. Pure, deterministic."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from outrider.topology import TopologyAsk
from outrider.workloads import NO_SEGMENT
from scheduler_plugin.cluster.fabric import Branch
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.domains import weakness
from scheduler_plugin.placing.room import Room
from scheduler_plugin.placing.tree import Taken, Tree, Way

_MOST_TRIED: Final = 16  # domains of a level tried for a gang of several kinds

Nodes = dict[str, str]  # node by pod UID
Segment = tuple[Member, ...]


class Bounds(msgspec.Struct, frozen=True):
    """How close a gang must be: all of it in one domain of depth ``top``, each segment in one of depth ``segment``.

    0 is the whole cluster. An ``exclusive`` segment shares its domain with no other of the gang.
    """

    top: int = 0
    segment: int = 0
    exclusive: bool = False


def segments_of(members: Sequence[Member], ask: TopologyAsk) -> list[Segment]:
    """Return the parts of a gang whose pods belong together, in rank order: its owner's own, else runs of ranks."""
    size = max(ask.segment_pods, 1)
    parts: defaultdict[tuple[bool, int], list[Member]] = defaultdict(list)
    for one in sorted(members, key=lambda one: one.rank):
        own = one.segment != NO_SEGMENT
        parts[own, one.segment if own else one.rank // size].append(one)
    return [tuple(part) for part in parts.values()]


class Search:
    """The search for one gang on one snapshot. It takes from the room while it tries, and gives back what failed."""

    def __init__(self, room: Room, snapshot: Snapshot) -> None:
        self._room = room
        self.fabric = snapshot.atlas.fabric(snapshot.nodes, len(snapshot.levels))
        views = [snapshot.nodes[name] for name in self.fabric.names]
        self._weak = [weakness(view) for view in views]
        self._busy = [view.spare_gpus < view.gpus for view in views]
        kinds = sorted(room.kinds, key=lambda kind: (-kind[0].gpus * len(kind), -len(kind), kind[0].rank))
        counts = [room.counts(kind[0], self.fabric.names) for kind in kinds]
        if all(count == counts[0] for count in counts):
            # Kinds that fit the same nodes equally often fit them mixed as well: no rank needs to go before another.
            kinds, counts = [[one for kind in kinds for one in kind]], counts[:1]
        self._needs = [len(kind) for kind in kinds]
        self._kinds = [frozenset(one.uid for one in kind) for kind in kinds]
        self._trees = [Tree(self.fabric, count, self._weak, self._busy, self.fabric.node_depth) for count in counts]

    def place(self, segments: Sequence[Segment], bounds: Bounds) -> Nodes | None:
        """Return a node for every member within bounds, None where that can't be."""
        sizes = {len(segment) for segment in segments[:-1]} or {len(segments[0])}
        alike = len(self._needs) == 1 and not self._room.intertwined
        if alike and not bounds.segment:
            return self._alike(segments, bounds.top)
        if alike and len(sizes) == 1 and len(segments[-1]) <= max(sizes):
            return self._in_segments(segments, bounds)
        return self._mixed(segments, bounds)

    def nearest(self, depth: int, count: int) -> list[tuple[Branch, int]]:
        """Return the domains of a level that come nearest to holding the gang, with the pods that fit there."""
        rooms = [(one, min(tree.room(one) for tree in self._trees)) for one in self.fabric.at(depth)]
        short = [(one, room) for one, room in rooms if room and not self._holds(one)]
        return sorted(short, key=lambda entry: (-entry[1], entry[0].start))[:count]

    def obstacles(self, segments: Sequence[Segment], bounds: Bounds, level: str) -> Iterator[str]:
        """Yield in words what counting the pods of each kind does not show of why the gang has no place."""
        largest = max(segments, key=len)
        if bounds.segment and len(largest) > 1:
            needs = [len([one for one in largest if one.uid in kind]) for kind in self._kinds]
            fit = sum(self._times(cell, needs, bounds) for cell in self.fabric.at(bounds.segment))
            if not fit:
                yield f"no {level} has room for a part of {len(largest)} pods"
            elif fit < len(segments):
                yield f"{fit} of {len(segments)} parts of {len(largest)} pods find room, each under one {level}"
        elif len(self._trees) > 1 and any(map(self._holds, self.fabric.at(bounds.top))):
            yield f"its {len(self._trees)} kinds of pods have room, but not all at once"

    def _times(self, cell: Branch, needs: Sequence[int], bounds: Bounds) -> int:
        """Return how often a domain has room for what a segment needs of each kind, each kind for itself."""
        times = min(tree.room(cell) // need for tree, need in zip(self._trees, needs, strict=True) if need)
        return min(times, 1) if bounds.exclusive else times

    def _holds(self, branch: Branch) -> bool:
        return all(tree.room(branch) >= need for tree, need in zip(self._trees, self._needs, strict=True))

    def _alike(self, segments: Sequence[Segment], top: int) -> Nodes | None:
        way = self._trees[0].solve(self._needs[0], top)
        return None if way is None else self._seated(segments, way.taken)

    def _seated(self, segments: Sequence[Segment], places: Taken) -> Nodes:
        """Give the members, in order, the places in order: neighbours in rank are neighbours in the network."""
        names = self.fabric.names
        seats = (names[branch.start] for branch, count in places for _ in range(count))
        members = (one for segment in segments for one in segment)
        return {one.uid: name for one, name in zip(members, seats, strict=True)}

    def _in_segments(self, segments: Sequence[Segment], bounds: Bounds) -> Nodes | None:
        """Place segments of one size, of which the last may be smaller, as if each were a pod of its own."""
        size, rest = len(segments[0]), len(segments[-1]) % len(segments[0])
        coarse = self._coarse(size, bounds)
        way = coarse.solve(len(segments), bounds.top)
        if way is not None:
            return self._seated(segments, self._within(way.taken, size, self._needs[0]))
        if not rest or len(segments) == 1:
            return None
        return self._with_rest(segments, bounds, coarse, rest)

    def _coarse(self, size: int, bounds: Bounds) -> Tree:
        fine = self._trees[0]
        counts, weak = [0] * len(self._weak), [0] * len(self._weak)
        for cell in self.fabric.at(bounds.segment):
            room = fine.room(cell) // size
            counts[cell.start] = min(room, 1) if bounds.exclusive else room
            weak[cell.start] = fine.sickness(cell, size) if room else 0
        return Tree(self.fabric, counts, weak, self._busy, bounds.segment)

    def _within(self, cells: Taken, size: int, pods: int) -> Taken:
        """Return the nodes for so many pods in the domains chosen for segments of that size."""
        places: Taken = []
        for cell, count in cells:
            here = min(count * size, pods)
            places += self._trees[0].spread(cell, here)
            pods -= here
        return places

    def _with_rest(self, segments: Sequence[Segment], bounds: Bounds, coarse: Tree, rest: int) -> Nodes | None:
        """Place the whole segments, and the last one, which is smaller, where it still fits."""
        fine, size, whole = self._trees[0], len(segments[0]), len(segments) - 1
        for found in coarse.holding(whole, bounds.top):
            for way in islice(coarse.ways(found, whole), _MOST_TRIED):
                used = {
                    cell.start: 0 if bounds.exclusive else fine.room(cell) - count * size for cell, count in way.taken
                }
                cells = self.fabric.under(self._outer(way.domain, bounds.top), bounds.segment)
                free = [(cell, used.get(cell.start, fine.room(cell))) for cell in cells]
                fits = [(cell.start not in used, room, cell.start, cell) for cell, room in free if room >= rest]
                if fits:
                    return self._split(segments, way.taken, min(fits, key=lambda fit: fit[:3])[3], rest)
        return None

    def _outer(self, branch: Branch, top: int) -> Branch:
        return next((one for one in self.fabric.around(branch) if one.depth == top), branch)

    def _split(self, segments: Sequence[Segment], cells: Taken, last: Branch, rest: int) -> Nodes:
        fine, size = self._trees[0], len(segments[0])
        places, tail = [], []
        for cell, count in cells:
            more = rest if cell.start == last.start else 0
            seats = [branch for branch, times in fine.spread(cell, count * size + more) for _ in range(times)]
            places += seats[: count * size]
            tail += seats[count * size :]
        if not tail:
            tail = [branch for branch, times in fine.spread(last, rest) for _ in range(times)]
        return self._seated(segments, [(branch, 1) for branch in places + tail])

    def _mixed(self, segments: Sequence[Segment], bounds: Bounds) -> Nodes | None:
        """Place members of several kinds: the main kind as if alone, the others beside it, in the first domain so."""
        tree, need = self._trees[0], self._needs[0]
        for found in tree.holding(need, bounds.top):
            able = [one for one in found if self._holds(one)]
            for way in islice(tree.ways(able, need), _MOST_TRIED) if able else ():
                nodes = self._together(segments, way) if not bounds.segment else self._bundles(segments, way, bounds)
                if nodes is not None:
                    return nodes
        return None

    def _together(self, segments: Sequence[Segment], way: Way) -> Nodes | None:
        members = [one for segment in segments for one in segment]
        first = sorted(members, key=lambda one: (one.uid not in self._kinds[0], -one.gpus, one.rank))
        inside = self.fabric.names[way.domain.start : way.domain.end]
        nodes = self._room.first_fit(first, list(dict.fromkeys((*self._around(way), *inside))))
        return nodes if nodes is not None else self._room.first_fit(members, inside)

    def _around(self, way: Way) -> Iterator[str]:
        """Yield the nodes of the places, then the others under the same leaves."""
        names, depth = self.fabric.names, self.fabric.leaf_depth
        yield from (names[branch.start] for branch, _ in way.taken)
        for branch, _ in way.taken:
            leaf = self._outer(branch, depth) if branch.depth > depth else branch
            if leaf.depth == depth:
                yield from names[leaf.start : leaf.end]

    def _bundles(self, segments: Sequence[Segment], way: Way, bounds: Bounds) -> Nodes | None:
        """Place segments that differ, the largest first, each in a domain in use already, else in the roomiest."""
        cells = self._cells(way.domain, bounds.segment)
        nodes: Nodes = {}
        used: list[Branch] = []
        for segment in sorted(segments, key=lambda one: (-sum(part.gpus for part in one), -len(one), one[0].rank)):
            ordered = sorted(segment, key=lambda one: (-one.gpus, one.rank))
            fresh = [cell for cell in cells if cell not in used]
            tries = fresh if bounds.exclusive else used + fresh
            cell = next((one for one in tries if self._seat(ordered, one, nodes)), None)
            if cell is None:
                self._room.give_back((one for part in segments for one in part), nodes)
                return None
            if cell not in used:
                used.append(cell)
        return nodes

    def _cells(self, domain: Branch, depth: int) -> list[Branch]:
        found = [domain] if domain.depth >= depth else list(self.fabric.under(domain, depth))
        return sorted(found, key=lambda one: (-self._trees[0].room(one), one.start))

    def _seat(self, members: Sequence[Member], cell: Branch, nodes: Nodes) -> Mapping[str, str] | None:
        found = self._room.first_fit(members, self.fabric.names[cell.start : cell.end])
        nodes.update(found or {})
        return found
