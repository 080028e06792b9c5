"""Domains for people, and how unhealthy a node is."""

from typing import Final

from outrider.topology.domains import Path
from scheduler_plugin.cluster.nodes import NodeView

_HEALTH_STEP: Final = 10  # scores closer than this count as equally healthy, so that noise moves no gang


def weakness(view: NodeView) -> int:
    """Return how unhealthy a node is, 0 (score above 90) to 10 (score 0)."""
    return (100 - view.judgement.score) // _HEALTH_STEP


def label(path: Path) -> str:
    """Return a domain's name for people: its named parts, or the whole cluster."""
    return "/".join(part for part in path if part and not part.startswith("?")) or "cluster"
