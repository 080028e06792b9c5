"""Network topology of nodes: levels and domains. Pure."""

from outrider.topology.ask import NO_ASK, TopologyAsk
from outrider.topology.domains import Place, common, place
from outrider.topology.levels import PRESETS, Level, Levels, levels_from
from outrider.topology.shared import CLUSTER_LEVEL, NVLINK_LEVEL, RACK_LEVEL, Domain, domains_of

__all__ = [
    "CLUSTER_LEVEL",
    "NO_ASK",
    "NVLINK_LEVEL",
    "PRESETS",
    "RACK_LEVEL",
    "Domain",
    "Level",
    "Levels",
    "Place",
    "TopologyAsk",
    "common",
    "domains_of",
    "levels_from",
    "place",
]
