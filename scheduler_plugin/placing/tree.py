"""Choosing domains for pods that are alike: which of them, and how many pods in each. Pure and deterministic.

The number of domains used is minimal at every level, the highest first: exact while one domain of a level holds the
gang, else found by trying the likeliest sets of domains. Among equals: the healthiest, then the fewest domains that
nobody uses yet (so that whole leaves and cliques stay free for the next gang), then what is left with least room.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, combinations
from math import comb
from operator import mul
from typing import Final, NamedTuple

from scheduler_plugin.cluster.fabric import Branch, Fabric
from scheduler_plugin.placing.choosing import Item, fewest, select

_MOST_SETS: Final = 64  # sets of domains looked at for one step down
_MOST_STEPS: Final = 8  # improvements of a set
_BEAM: Final = 6  # sets kept for the next level
_MOST_TRIED: Final = 48  # domains of one level tried to the end

Taken = list[tuple[Branch, int]]
Cost = tuple[object, ...]
_Set = tuple[Branch, ...]


class Way(NamedTuple):
    """One way to hold a need: the domain that holds all of it, and the places in that."""

    domain: Branch
    taken: Taken


class Tree:
    """Room under each domain for pods, or segments of pods, that are alike.

    ``counts``, ``weak`` (how unhealthy, 0 to 10) and ``busy`` (partly in use) are by node, in the fabric's order.
    ``floor`` is the depth at which to stop: that of single nodes, or of the domains that hold whole segments, whose
    count stands at their first node.
    """

    def __init__(
        self, fabric: Fabric, counts: Sequence[int], weak: Sequence[int], busy: Sequence[bool], floor: int
    ) -> None:
        self.fabric, self.floor = fabric, floor
        self._counts, self._weak = counts, weak
        self._room = [0, *accumulate(counts)]
        self._sick = [0, *accumulate(map(mul, counts, weak))]
        self._busy = [0, *accumulate(busy)]
        self._depths = [*(depth for depth in fabric.depths if depth < floor), floor]
        self._tops: dict[tuple[int, int, int], list[int]] = {}
        self._shared = max(counts, default=0) > 1

    def room(self, branch: Branch) -> int:
        """Return how many fit under a domain."""
        return self._room[branch.end] - self._room[branch.start]

    def holding(self, need: int, top: int) -> Iterator[list[Branch]]:
        """Yield, from the lowest level up to depth ``top``, the domains of a level that hold the need, if any do."""
        for depth in sorted({min(top, self.floor), *(one for one in self._depths if one > top)}, reverse=True):
            found = [one for one in self.fabric.at(depth) if self.room(one) >= need]
            if found:
                yield found

    def solve(self, need: int, top: int) -> Way | None:
        """Return the best way in one domain of depth ``top`` or below; None where none of them has the room."""
        found = next(self.holding(need, top), None)
        return next(self.ways(found, need)) if found else None

    def ways(self, found: Sequence[Branch], need: int) -> Iterator[Way]:
        """Yield for the likeliest of domains that hold the need how they would, the best first."""
        if found[0].depth >= min(self.fabric.leaf_depth, self.floor):
            yield from (Way(one, self.spread(one, need)) for one in self._tightest(found, need))
            return
        likely = sorted(found, key=lambda one: (self._outlook((one,), need), self.room(one), one.start))
        ways = [(*self._descend(one, need), one) for one in likely[:_MOST_TRIED]]
        for _, chosen, one in sorted(ways, key=lambda way: (way[0], way[2].start)):
            yield Way(one, self._fill(chosen))

    def spread(self, branch: Branch, need: int) -> Taken:
        """Return the best places for the need in a domain that holds it."""
        if need == self.room(branch):
            places = self.fabric.under(branch, self.floor)
            return [(place, count) for place in places if (count := self.room(place))]
        if branch.depth >= self.floor or not branch.children:
            return [(branch, need)]
        if branch.depth < self.fabric.leaf_depth:
            return self._fill(self._descend(branch, need)[1])
        return self._fill(select(self._items(branch.children, need), need))

    def _fill(self, chosen: Sequence[tuple[Branch, int]]) -> Taken:
        return [place for branch, count in chosen for place in self.spread(branch, count)]

    def _tightest(self, found: Sequence[Branch], need: int) -> Iterator[Branch]:
        """Yield the domains by what would be left of them, and among equals of the domains around them."""
        fits: defaultdict[Cost, list[Branch]] = defaultdict(list)
        for one in found:
            fit: Cost = (self._outlook((one,), need), self.sickness(one, need), self._whole(one), self.room(one))
            fits[fit].append(one)
        for fit in sorted(fits):
            yield from sorted(fits[fit], key=self._around)

    def _around(self, branch: Branch) -> Cost:
        """Return how little room the domains around a domain have, from the smallest to the largest; then its place."""
        return *((self._whole(one), self.room(one)) for one in self.fabric.around(branch)), branch.start

    def _descend(self, top: Branch, need: int) -> tuple[Cost, Taken]:
        """Return the best places in a domain above the leaves, found by the likeliest sets, with what orders them."""
        sets: list[_Set] = [(top,)]
        last = min(self.fabric.leaf_depth, self.floor)
        while sets[0][0].depth < last - 1:
            sets = self._narrow(sets, need)
        ways = []
        for branches in sets:
            chosen = select(self._items(_children(branches), need), need)
            ways.append(((*self._price(chosen, need), self._whole(top), self.room(top)), chosen))
        cost, chosen = min(ways, key=lambda way: (way[0], way[1][0][0].start))
        return cost, chosen

    def _price(self, chosen: Sequence[tuple[Branch, int]], need: int) -> Cost:
        branches = tuple(branch for branch, _ in chosen)
        sick = max(self.sickness(branch, count) for branch, count in chosen)
        wholes = sum(self._whole(branch) for branch in branches)
        return len(chosen), self._outlook(branches, need), sick, wholes, sum(map(self.room, branches))

    def _narrow(self, sets: Sequence[_Set], need: int) -> list[_Set]:
        """Return the likeliest sets of the next level, all of the least size that holds the need."""
        grown: dict[_Set, Cost] = {}
        for branches in sets:
            kids = sorted(filter(self.room, _children(branches)), key=lambda one: (-self.room(one), one.start))
            for one in self._sets(kids, need):
                grown[one] = (len(one), self._merit(one, need))
        return sorted(grown, key=grown.__getitem__)[:_BEAM]

    def _merit(self, branches: _Set, need: int) -> Cost:
        wholes = sum(map(self._whole, branches))
        return (
            self._outlook(branches, need),
            wholes,
            sum(map(self.room, branches)),
            tuple(one.start for one in branches),
        )

    def _sets(self, kids: Sequence[Branch], need: int) -> Iterator[_Set]:
        """Yield sets of the least number of domains that hold the need: all of them, or those found step by step."""
        size = fewest([self.room(one) for one in kids], need)
        if comb(len(kids), size) <= _MOST_SETS:
            yield from (one for one in combinations(kids, size) if sum(map(self.room, one)) >= need)
            return
        best = tuple(kids[:size])
        yield best
        for _ in range(_MOST_STEPS):
            tries = list(self._swaps(best, kids, need))
            yield from tries
            better = min(tries, key=lambda one: self._merit(one, need), default=best)
            if self._merit(better, need) >= self._merit(best, need):
                return
            best = better

    def _swaps(self, chosen: _Set, kids: Sequence[Branch], need: int) -> Iterator[_Set]:
        """Yield the sets that differ in one domain and still hold the need, the smallest newcomers first."""
        spare = sum(map(self.room, chosen)) - need
        others = [one for one in reversed(kids) if one not in chosen]
        swaps = (
            (*(one for one in chosen if one is not out), into)
            for into in others
            for out in chosen
            if self.room(into) >= self.room(out) - spare
        )
        return (
            tuple(sorted(one, key=lambda part: part.start)) for one, _ in zip(swaps, range(_MOST_SETS), strict=False)
        )

    def _outlook(self, branches: _Set, need: int) -> tuple[int, ...]:
        """Return how many domains of each deeper level the need takes at least, the highest level first."""
        last = self.floor if self._shared else self.floor - 1  # where a node takes one pod, nodes are no question
        depths = [depth for depth in self._depths if branches[0].depth < depth <= last]
        return tuple(self._least(branches, depth, need) for depth in depths)

    def _least(self, branches: _Set, depth: int, need: int) -> int:
        if len(branches) == 1:
            return fewest(self._rooms(branches[0], depth), need)
        rooms = chain.from_iterable(self._rooms(one, depth) for one in branches)
        return fewest(sorted(rooms, reverse=True), need)

    def _rooms(self, branch: Branch, depth: int) -> list[int]:
        """Return the room of each domain of a level under a domain, the largest first."""
        key = (branch.start, branch.depth, depth)
        if key not in self._tops:
            rooms = [self.room(one) for one in self.fabric.under(branch, depth)]
            self._tops[key] = sorted(rooms, reverse=True)
        return self._tops[key]

    def _items(self, branches: Sequence[Branch], need: int) -> list[Item]:
        """Return the domains that have room as things to choose from."""
        return [
            Item(room, self.sickness(one, min(need, room)), self._whole(one), one)
            for one in branches
            if (room := self.room(one))
        ]

    def _whole(self, branch: Branch) -> bool:
        """Return whether nothing under the domain is in use."""
        return self._busy[branch.end] == self._busy[branch.start]

    def sickness(self, branch: Branch, need: int) -> int:
        """Return how unhealthy the best places for the need are on the whole, 0 to 10."""
        sick = self._sick[branch.end] - self._sick[branch.start]
        if not sick:
            return 0
        left, total = need, 0
        span = range(branch.start, branch.end)
        for weak, count in sorted((self._weak[one], self._counts[one]) for one in span if self._counts[one]):
            used = min(left, count)
            total, left = total + used * weak, left - used
        return int(total // need)


def _children(branches: Sequence[Branch]) -> list[Branch]:
    return [child for one in branches for child in one.children]
