"""Where a node sits: the path of domains from the top level to its leaf, and what two such paths share."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from outrider.topology.levels import NVLINK_LEVEL, Levels

Path = tuple[str, ...]
_DIGITS: Final = re.compile(r"(\d+)")


@lru_cache(maxsize=65536)
def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key by which node-2 comes before node-10."""
    return tuple((int(part), "") if part.isdigit() and part.isascii() else (-1, part) for part in _DIGITS.split(text))


def order(path: Path) -> tuple[tuple[tuple[int, str], ...], ...]:
    """Return a sort key along the topology: neighbours in it are neighbours in the network."""
    return tuple(natural(part) for part in path)


class Place(msgspec.Struct, frozen=True):
    """A node's place. A domain is identified by its whole path, so equal names under different parents differ.

    ``path`` leads from the top of the network to the leaf; ``inner`` goes on to the NVLink domain below it, and is
    empty where NVLink ends at the node. So paths of all nodes are equally long, with ``inner`` they are not.
    """

    node: str
    path: Path
    inner: Path = ()

    @property
    def near(self) -> Path:
        """The whole way down to the smallest domain that the node shares with others."""
        return self.path + self.inner

    def domain(self, depth: int) -> Path:
        """Return the domain of so many levels that the node is in: below the last of them, the node itself."""
        near = self.near
        return near[:depth] if depth <= len(near) else (*near, "", self.node)


def place(node: str, labels: Mapping[str, str], levels: Levels, clique: str = "") -> Place:
    """Return the node's place. A ``clique`` read from the GPUs themselves takes the place of its label.

    A level without a label above a labelled one is one unnamed domain: the cluster does not use that level. Below the
    last label the node counts as a domain of its own, since nothing says that it is near any other.
    """
    outer: list[str] = []
    inner: list[str] = []
    for level in levels:
        if level.inner:
            inner.append(clique if clique and level.name == NVLINK_LEVEL else level.domain(labels))
        else:
            outer.append(level.domain(labels))
    while inner and not inner[-1]:
        inner.pop()
    if not inner:
        for depth in range(len(outer) - 1, -1, -1):
            if outer[depth]:
                break
            outer[depth] = f"?{node}"  # no label value starts so
    return Place(node, tuple(outer), tuple(inner))


def common(a: Path, b: Path) -> int:
    """Return how many domains from the top two paths share."""
    depth = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        depth += 1
    return depth
