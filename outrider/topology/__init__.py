"""Network topology of nodes: levels and domains. Pure."""

from outrider.topology.ask import NO_ASK, TopologyAsk
from outrider.topology.cliques import clique_of
from outrider.topology.domains import Place, common, place
from outrider.topology.levels import (
    CLIQUE_LABEL,
    NODE_LEVEL,
    NVLINK_LEVEL,
    PRESETS,
    Level,
    Levels,
    depth_of,
    levels_from,
    names_of,
)
from outrider.topology.oddities import oddities
from outrider.topology.shared import CLUSTER_LEVEL, RACK_LEVEL, Domain, domains_of

__all__ = [
    "CLIQUE_LABEL",
    "CLUSTER_LEVEL",
    "NODE_LEVEL",
    "NO_ASK",
    "NVLINK_LEVEL",
    "PRESETS",
    "RACK_LEVEL",
    "Domain",
    "Level",
    "Levels",
    "Place",
    "TopologyAsk",
    "clique_of",
    "common",
    "depth_of",
    "domains_of",
    "levels_from",
    "names_of",
    "oddities",
    "place",
]
