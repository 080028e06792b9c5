"""The network as a tree over the nodes, laid out so that every domain is one run of a list of nodes.

It depends on places alone, so one fabric serves all snapshots until a node comes, goes or moves.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, takewhile

import msgspec

from outrider.topology.domains import Path, Place, natural, order
from scheduler_plugin.cluster.nodes import NodeView


class Branch(msgspec.Struct, frozen=True):
    """A domain: nodes ``start`` to ``end`` of the fabric's list. A single node is a branch of its own.

    ``depth`` counts levels from the top; single nodes are below all levels. ``children`` are the domains of the next
    level, and the nodes that are in none of them.
    """

    path: Path
    depth: int
    start: int
    end: int
    children: tuple["Branch", ...] = ()


class Fabric:
    """All domains. ``names`` are the nodes along the topology: neighbours in it are neighbours in the network.

    ``groups`` are the runs of nodes, from and up to, whose smallest common domain is the same one, by its path.
    ``leaf_depth`` is the depth of the leaves, ``node_depth`` that of single nodes.
    """

    def __init__(self, places: Iterable[Place], levels: int = 0) -> None:
        groups: defaultdict[Path, list[str]] = defaultdict(list)
        self.leaf_depth, deepest = 0, 0
        for one in places:
            near = one.path + one.inner
            groups[near].append(one.node)
            self.leaf_depth, deepest = len(one.path), max(deepest, len(near))
        self.node_depth = max(deepest, levels) + 1
        self.names: list[str] = []
        self._levels: defaultdict[int, list[Branch]] = defaultdict(list)
        self._around: dict[tuple[int, int], Branch] = {}
        self._at: dict[int, list[Branch]] = {}
        self.groups: list[tuple[Path, int, int]] = []
        ordered = sorted(groups, key=order)
        self.root = self._branch((), [(path, sorted(groups[path], key=natural)) for path in ordered])
        self.depths = sorted(self._levels)

    def _branch(self, path: Path, groups: list[tuple[Path, list[str]]]) -> Branch:
        """Return the domain of these nodes, by the smallest domain of each, and note it with all that is under it."""
        depth, start = len(path), len(self.names)
        below: dict[Path, list[tuple[Path, list[str]]]] = {}
        children: list[Branch] = []
        for near, names in groups:
            if len(near) > depth:
                below.setdefault(near[: depth + 1], []).append((near, names))
            else:
                children += [self._node(near, name) for name in names]
                self.groups.append((near, len(self.names) - len(names), len(self.names)))
        children += [self._branch(*entry) for entry in below.items()]
        made = Branch(path, depth, start, len(self.names), tuple(children))
        self._around |= {(child.start, child.depth): made for child in children}
        self._levels[depth].append(made)
        return made

    def _node(self, near: Path, name: str) -> Branch:
        start = len(self.names)
        self.names.append(name)
        node = Branch((*near, "", name), self.node_depth, start, start + 1)
        self._levels[self.node_depth].append(node)
        return node

    def at(self, depth: int) -> list[Branch]:
        """Return the domains of a level along the topology; a node that is in none counts as one of its own."""
        if depth not in self._at:
            self._at[depth] = self._with_single(self._levels.get(depth, []))
        return self._at[depth]

    def under(self, branch: Branch, depth: int) -> Iterator[Branch]:
        """Yield the domains of a lower level that are under a domain, along the topology."""
        found = self.at(depth)
        first = bisect_left(found, branch.start, key=lambda one: one.start)
        return takewhile(lambda one: one.start < branch.end, islice(found, first, None))

    def around(self, branch: Branch) -> Iterator[Branch]:
        """Yield the domains that a domain is in, from the smallest up to the whole cluster."""
        outer = self._around.get((branch.start, branch.depth))
        while outer is not None:
            yield outer
            outer = self._around.get((outer.start, outer.depth))

    def _with_single(self, found: list[Branch]) -> list[Branch]:
        covered = sum(one.end - one.start for one in found)
        if covered == len(self.names):
            return found
        inside = [False] * len(self.names)
        for one in found:
            inside[one.start : one.end] = [True] * (one.end - one.start)
        alone = [one for one in self._levels[self.node_depth] if not inside[one.start]]
        return sorted(found + alone, key=lambda one: one.start)


class Atlas:
    """The fabric of a set of places that does not change, drawn when it is first needed."""

    def __init__(self) -> None:
        self._fabric: Fabric | None = None

    def fabric(self, nodes: Mapping[str, NodeView], levels: int = 0) -> Fabric:
        """Return the fabric; ``nodes`` are those of any snapshot with these places."""
        if self._fabric is None or len(self._fabric.names) != len(nodes):
            self._fabric = Fabric([view.place for view in nodes.values()], levels)
        return self._fabric
