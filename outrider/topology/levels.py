"""Levels of the network, top to bottom, each read from a node label. Configuration: no standard keys exist.

KEP-4962, which would have standardised the labels, was closed; vendors also number tiers in opposite directions
(AWS layer 1 is the top, topograph tier 0 the bottom). So the order is that of the list, never that of a number.
Inner levels lie below the leaf switch: nodes that share more than it, such as the NVLink of a rack (GB200 NVL72).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.names import RACK_LABEL

NVLINK_LEVEL: Final = "nvlink-domain"
NODE_LEVEL: Final = "node"
_HOSTNAME: Final = "kubernetes.io/hostname"
# GPU feature discovery writes ClusterUUID.CliqueID of the fabric here, only where NVLink reaches beyond the node.
CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
# What labellers write where they know nothing; read as no value, or all such nodes would seem to be neighbours.
_NOTHING: Final = frozenset({"unknown", "none", "null", "nil", "undefined", "unset", "na", "n-a", "not-available"})


class Level(msgspec.Struct, frozen=True):
    """One level: its name for people and the node label that holds a node's domain there.

    ``also`` are other labels for the same, read where the first is missing. ``inner`` levels are below the leaf and
    count only for the nodes that have them.
    """

    name: str
    label: str
    also: tuple[str, ...] = ()
    inner: bool = False

    def domain(self, labels: Mapping[str, str]) -> str:
        """Return the name of the node's domain at this level, empty where no label tells."""
        value = labels.get(self.label)
        if value is None and self.also:
            value = next((labels[label] for label in self.also if label in labels), None)
        return value if value and value.lower() not in _NOTHING else ""


Levels = tuple[Level, ...]

_REGION: Final = Level("region", "topology.kubernetes.io/region")
_ZONE: Final = Level("zone", "topology.kubernetes.io/zone")


def _nvlink(*also: str) -> Level:
    return Level(NVLINK_LEVEL, CLIQUE_LABEL, also, inner=True)


def _levels(*inner: Level, **labels: str | tuple[str, ...]) -> Levels:
    network = (
        Level(name, key) if isinstance(key, str) else Level(name, key[0], key[1:]) for name, key in labels.items()
    )
    return (_REGION, _ZONE, *network, *(inner or (_nvlink(),)))


_TOPOGRAPH_OLD: Final = "network.topology.nvidia.com"
_TOPOGRAPH: Final = "fabric.topograph.run"

PRESETS: Final[Mapping[str, Levels]] = {
    # topograph up to 0.5; its first releases wrote datacenter and block
    "nvidia": _levels(
        _nvlink(f"{_TOPOGRAPH_OLD}/accelerator"),
        core=(f"{_TOPOGRAPH_OLD}/core", f"{_TOPOGRAPH_OLD}/datacenter"),
        spine=f"{_TOPOGRAPH_OLD}/spine",
        leaf=(f"{_TOPOGRAPH_OLD}/leaf", f"{_TOPOGRAPH_OLD}/block"),
    ),
    # topograph from 1.0: as many tiers as the fabric has, 0 at the node; a sub-domain only within a domain
    "topograph": _levels(
        _nvlink("accelerator.topograph.run/domain"),
        Level("nvlink-sub-domain", "accelerator.topograph.run/sub-domain", inner=True),
        tier3=f"{_TOPOGRAPH}/tier-3",
        core=f"{_TOPOGRAPH}/tier-2",
        spine=f"{_TOPOGRAPH}/tier-1",
        leaf=f"{_TOPOGRAPH}/tier-0",
    ),
    "aws": _levels(
        _nvlink("topology.k8s.aws/ultraserver-id"),
        spine="topology.k8s.aws/network-node-layer-1",
        aggregation="topology.k8s.aws/network-node-layer-2",
        leaf="topology.k8s.aws/network-node-layer-3",
    ),
    # a host is a physical machine, which may carry several nodes
    "gke": _levels(
        _nvlink(),
        Level("host", "cloud.google.com/gce-topology-host", ("topology.gke.io/host",), inner=True),
        block=("cloud.google.com/gce-topology-block", "topology.gke.io/cluster"),
        subblock=("cloud.google.com/gce-topology-subblock", "topology.gke.io/rack"),
    ),
    "oci": _levels(
        block="oci.oraclecloud.com/host.network_block_id",
        rack="oci.oraclecloud.com/host.rack_id",
    ),
    "coreweave": _levels(
        _nvlink("ds.coreweave.com/nvlink.domain"),
        fabric=("backend.coreweave.cloud/fabric", "ib.coreweave.cloud/fabric"),
        superpod=("backend.coreweave.cloud/superpod", "ib.coreweave.cloud/superpod"),
        leafgroup=(
            "backend.coreweave.cloud/leafgroup",
            "backend.coreweave.cloud/leafgroup-name",
            "ib.coreweave.cloud/leafgroup",
        ),
    ),
    "crusoe": _levels(partition="crusoe.ai/ib.partition.id", pod="crusoe.ai/pod.id"),
    "generic": _levels(rack=RACK_LABEL),
}
_INNER: Final = {
    label: level
    for levels in PRESETS.values()
    for level in levels
    if level.inner
    for label in (level.label, *level.also)
}


def levels_from(preset: str, labels: Sequence[str] = ()) -> Levels:
    """Return the levels to use: the cluster's own labels, top to bottom, where it lists any, else the preset's.

    A level of one's own is named by the last part of its label; labels known to be of NVLink domains stand below the
    others wherever they are listed, and the clique that GPU feature discovery writes is always read. Raises ValueError
    that names the known presets, or the label that is listed twice.
    """
    if labels:
        repeated = sorted({label for label in labels if labels.count(label) > 1})
        if repeated:
            raise ValueError(f"topology labels repeat {', '.join(repeated)}: each level needs its own label")
        network = (Level(label.rpartition("/")[2], label) for label in labels if label not in _INNER)
        inner = dict.fromkeys(_INNER[label] for label in labels if label in _INNER)
        return (*network, *(inner or (_nvlink(),)))
    try:
        return PRESETS[preset]
    except KeyError:
        known = ", ".join(PRESETS)
        raise ValueError(f"unknown topology preset {preset!r}: use one of {known}, or list the labels") from None


def depth_of(levels: Levels, wanted: str) -> int | None:
    """Return how many domains from the top lead to a level given by its name or its label; None if there is none.

    Single nodes (node, kubernetes.io/hostname) are one below the last level. Of equal names the lowest level counts.
    """
    if wanted in (NODE_LEVEL, _HOSTNAME):
        return len(levels) + 1
    depths = (depth for depth in range(len(levels), 0, -1) if _named(levels[depth - 1], wanted))
    return next(depths, None)


def _named(level: Level, wanted: str) -> bool:
    return wanted in (level.name, level.label) or wanted in level.also


def names_of(levels: Levels) -> str:
    """Return the levels for people, top to bottom, to choose from."""
    return ", ".join((*(level.name for level in levels), NODE_LEVEL))
