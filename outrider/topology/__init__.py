"""Network topology of nodes: levels, domains, distances. Pure."""

from outrider.topology.domains import Place, distance, place
from outrider.topology.levels import PRESETS, Level, Levels, levels_from

__all__ = ["PRESETS", "Level", "Levels", "Place", "distance", "levels_from", "place"]
