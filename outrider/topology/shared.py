"""The domains that a node shares with others: what can fail for all of them at once. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from outrider.api.names import RACK_LABEL
from outrider.topology.domains import place
from outrider.topology.levels import NVLINK_LEVEL, Levels

RACK_LEVEL: Final = "rack"
CLUSTER_LEVEL: Final = "cluster"


class Domain(msgspec.Struct, frozen=True, order=True):
    """A part of the cluster, such as one leaf switch, with everything under it."""

    level: str
    name: str
    """Unique within the level: for levels of the network the whole path from the top."""

    def __str__(self) -> str:
        """Return the domain as people say it."""
        return f"{self.level} {self.name}" if self.name else f"the whole {self.level}"


def domains_of(node: str, labels: Mapping[str, str], levels: Levels) -> tuple[Domain, ...]:
    """Return the domains that the node is in, by its labels: NVLink domain, rack, network levels, the whole cluster."""
    cliques = (level.domain(labels) for level in levels if level.name == NVLINK_LEVEL)
    found = [Domain(NVLINK_LEVEL, clique) for clique in cliques if clique]
    if labels.get(RACK_LABEL):
        found.append(Domain(RACK_LEVEL, labels[RACK_LABEL]))
    path = place(node, labels, levels).path
    known = [depth for depth, level in enumerate(levels) if not level.inner and level.domain(labels)]
    found += [Domain(levels[depth].name, "/".join(part for part in path[: depth + 1] if part)) for depth in known]
    return (*dict.fromkeys(found), Domain(CLUSTER_LEVEL, ""))
