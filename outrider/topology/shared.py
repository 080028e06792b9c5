"""The domains that a node shares with others: what can fail for all of them at once. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from outrider.api.names import RACK_LABEL
from outrider.topology.domains import place
from outrider.topology.levels import Levels

NVLINK_LEVEL: Final = "nvlink-domain"
RACK_LEVEL: Final = "rack"
CLUSTER_LEVEL: Final = "cluster"
# GPU feature discovery writes ClusterUUID.CliqueID of the fabric here, only where NVLink reaches beyond the node.
_CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"


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
    found = [
        Domain(level, labels[label])
        for level, label in ((NVLINK_LEVEL, _CLIQUE_LABEL), (RACK_LEVEL, RACK_LABEL))
        if labels.get(label)
    ]
    path = place(node, labels, levels).path
    known = [depth for depth, level in enumerate(levels) if labels.get(level.label)]
    found += [Domain(levels[depth].name, "/".join(part for part in path[: depth + 1] if part)) for depth in known]
    return (*dict.fromkeys(found), Domain(CLUSTER_LEVEL, ""))
