"""Levels of the network, top to bottom, each read from a node label. Configuration: no standard keys exist.

KEP-4962, which would have standardised the labels, was closed; vendors also number tiers in opposite directions
(AWS layer 1 is the top, topograph tier 0 the bottom). So the order is that of the list, never that of a number.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec


class Level(msgspec.Struct, frozen=True):
    """One level: its name for people and the node label that holds a node's domain there."""

    name: str
    label: str


Levels = tuple[Level, ...]

_REGION: Final = Level("region", "topology.kubernetes.io/region")
_ZONE: Final = Level("zone", "topology.kubernetes.io/zone")


def _levels(**labels: str) -> Levels:
    return (_REGION, _ZONE, *(Level(name, label) for name, label in labels.items()))


PRESETS: Final[Mapping[str, Levels]] = {
    "nvidia": _levels(
        core="network.topology.nvidia.com/core",
        spine="network.topology.nvidia.com/spine",
        leaf="network.topology.nvidia.com/leaf",
    ),
    "topograph": _levels(
        core="fabric.topograph.run/tier-2",
        spine="fabric.topograph.run/tier-1",
        leaf="fabric.topograph.run/tier-0",
    ),
    "aws": _levels(
        spine="topology.k8s.aws/network-node-layer-1",
        aggregation="topology.k8s.aws/network-node-layer-2",
        leaf="topology.k8s.aws/network-node-layer-3",
    ),
    "gke": _levels(
        block="cloud.google.com/gce-topology-block",
        subblock="cloud.google.com/gce-topology-subblock",
        host="cloud.google.com/gce-topology-host",
    ),
    "oci": _levels(
        block="oci.oraclecloud.com/host.network_block_id",
        rack="oci.oraclecloud.com/host.rack_id",
    ),
    "coreweave": _levels(
        fabric="backend.coreweave.cloud/fabric",
        superpod="backend.coreweave.cloud/superpod",
        leafgroup="backend.coreweave.cloud/leafgroup",
    ),
}


def levels_from(preset: str, labels: Sequence[str] = ()) -> Levels:
    """Return the levels to use: the cluster's own labels, top to bottom, where it lists any, else the preset's.

    A level of one's own is named by the last part of its label. Raises ValueError that names the known presets, or
    the label that is listed twice.
    """
    if labels:
        repeated = sorted({label for label in labels if labels.count(label) > 1})
        if repeated:
            raise ValueError(f"topology labels repeat {', '.join(repeated)}: each level needs its own label")
        return tuple(Level(label.rpartition("/")[2], label) for label in labels)
    try:
        return PRESETS[preset]
    except KeyError:
        known = ", ".join(PRESETS)
        raise ValueError(f"unknown topology preset {preset!r}: use one of {known}, or list the labels") from None
