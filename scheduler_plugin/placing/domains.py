"""Choosing domains: a tree of the network with the room under each branch."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from outrider.topology.domains import Path, order
from scheduler_plugin.cluster.nodes import NodeView

_HEALTH_STEP: Final = 10  # scores closer than this count as equally healthy, so that noise moves no gang


def weakness(view: NodeView) -> int:
    """Return how unhealthy a node is, 0 (score above 90) to 10 (score 0)."""
    return (100 - view.judgement.score) // _HEALTH_STEP


def label(path: Path) -> str:
    """Return a domain's name for people: its named parts, or the whole cluster."""
    return "/".join(part for part in path if part and not part.startswith("?")) or "cluster"


class Tree:
    """Domains from the whole cluster, (), down to single nodes, with the slots under each for each kind of member."""

    def __init__(self, slots: Sequence[Mapping[str, int]], nodes: Mapping[str, NodeView]) -> None:
        self._room: list[Counter[Path]] = []
        self._weakness: Counter[Path] = Counter()
        self._children: defaultdict[Path, set[Path]] = defaultdict(set)
        self._levels: defaultdict[int, set[Path]] = defaultdict(set)
        for counts in slots:
            self._room.append(self._count(counts, nodes))

    def _count(self, counts: Mapping[str, int], nodes: Mapping[str, NodeView]) -> "Counter[Path]":
        """Return the slots under every branch: first per node, then leaf by leaf up to the whole cluster."""
        room: Counter[Path] = Counter()
        leaves: defaultdict[Path, list[tuple[int, int]]] = defaultdict(list)
        for name, count in counts.items():
            view = nodes[name]
            path = (*view.place.path, name)
            weak = weakness(view) * count
            leaves[view.place.path].append((count, weak))
            self._add(room, path, count, weak)
        for leaf, entries in leaves.items():
            count, weak = (sum(column) for column in zip(*entries, strict=True))
            for depth in range(len(leaf), -1, -1):
                self._add(room, leaf[:depth], count, weak)
        return room

    def _add(self, room: "Counter[Path]", branch: Path, count: int, weak: int) -> None:
        room[branch] += count
        self._weakness[branch] += weak
        self._levels[len(branch)].add(branch)
        if branch:
            self._children[branch[:-1]].add(branch)

    def holding(self, needs: Sequence[int]) -> Iterator[list[Path]]:
        """Yield, from single nodes up to the whole cluster, the domains of a level that have all the slots needed."""
        for depth in sorted(self._levels, reverse=True):
            found = [path for path in self._levels[depth] if self._holds(path, needs)]
            if found:
                yield sorted(found, key=lambda path: self._tightness(path, needs))

    def best(self, domains: Iterable[Path], need: int) -> list[tuple[Path, int]]:
        """Return the nodes and slots to use, in topology order, in the best of the domains for one kind of member.

        Best: fewest leaves, then healthiest, then the one that is left with the least room at each level.
        """
        choices = ((path, self._take(path, need)) for path in domains)
        _, taken = min(choices, key=lambda choice: (self._cost(choice[1]), self._tightness(choice[0], [need])))
        return sorted(taken, key=lambda entry: order(entry[0]))

    def under(self, domain: Path) -> list[str]:
        """Return the names of the nodes under a domain, in topology order."""
        paths = [domain]
        while paths and self._children.get(paths[0]):
            paths = [child for path in paths for child in self._children[path]]
        return [path[-1] for path in sorted(paths, key=order)]

    def most(self, needs: Sequence[int], count: int) -> list[tuple[Path, int]]:
        """Return the leaves that come nearest to holding the gang, with the slots that they have."""
        depth = max(self._levels, default=0) - 1
        short = [path for path in self._levels.get(depth, ()) if not self._holds(path, needs)]
        rooms = [(path, min(room[path] for room in self._room)) for path in short]
        return sorted(rooms, key=lambda entry: (-entry[1], order(entry[0])))[:count]

    def _holds(self, path: Path, needs: Sequence[int]) -> bool:
        return all(room[path] >= need for room, need in zip(self._room, needs, strict=True))

    def _tightness(self, path: Path, needs: Sequence[int]) -> tuple[object, ...]:
        ancestors = [path[:depth] for depth in range(len(path), -1, -1)]
        left = tuple(self._room[0][branch] - needs[0] for branch in ancestors)
        return (*left, order(path))

    def _cost(self, taken: Sequence[tuple[Path, int]]) -> tuple[int, float]:
        leaves = {path[:-1] for path, _ in taken}
        return len(leaves), max(self._mean_weakness(path) for path, _ in taken)

    def _mean_weakness(self, path: Path) -> float:
        return self._weakness[path] / self._room[0][path]

    def _take(self, path: Path, need: int) -> list[tuple[Path, int]]:
        """Split the need over the fewest branches: the largest first, and last the tightest that holds the rest."""
        children = self._children.get(path)
        if not children:
            return [(path, need)]
        room = self._room[0]
        left = sorted(children, key=lambda child: (-room[child], self._mean_weakness(child), order(child)))
        taken: list[tuple[Path, int]] = []
        for position, child in enumerate(left):
            if room[child] >= need:
                last = min(
                    (one for one in left[position:] if room[one] >= need),
                    key=lambda one: (self._mean_weakness(one) // 1, room[one], self._mean_weakness(one), order(one)),
                )
                return taken + self._take(last, need)
            taken += self._take(child, room[child])
            need -= room[child]
        return taken
