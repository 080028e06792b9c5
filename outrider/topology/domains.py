"""Where a node sits: the path of domains from the top level to its leaf, and what two such paths share."""

from collections.abc import Mapping

import msgspec

from outrider.topology.levels import Levels

Path = tuple[str, ...]


class Place(msgspec.Struct, frozen=True):
    """A node's place. A domain is identified by its whole path, so equal names under different parents differ."""

    node: str
    path: Path


def place(node: str, labels: Mapping[str, str], levels: Levels) -> Place:
    """Return the node's place.

    A level without a label above a labelled one is one unnamed domain: the cluster does not use that level. Below the
    last label the node counts as a domain of its own, since nothing says that it is near any other.
    """
    values = [labels.get(level.label, "") for level in levels]
    known = max((depth + 1 for depth, value in enumerate(values) if value), default=0)
    path = (*values[:known], *(f"?{node}" for _ in values[known:]))
    return Place(node, path)


def common(a: Path, b: Path) -> int:
    """Return how many domains from the top two paths share."""
    depth = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        depth += 1
    return depth
