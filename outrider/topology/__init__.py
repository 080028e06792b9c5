"""Network topology of nodes: levels and domains. Pure."""

from outrider.topology.domains import Place, common, place
from outrider.topology.levels import PRESETS, Level, Levels, levels_from

__all__ = ["PRESETS", "Level", "Levels", "Place", "common", "levels_from", "place"]
