"""What all nodes together say about the domains that they share, kept up to date from the informers."""

from collections.abc import Mapping
from typing import Final

from outrider.api.core import Node
from outrider.api.gpunode import GPUNode
from outrider.health.domains import Outlook, judge_domains
from outrider.health.testimony import Places
from outrider.topology import Domain, Levels, domains_of

_REFRESH_SECONDS: Final = 1.0  # silence and the age of evidence change the outlook without any news
REST_SECONDS: Final = 0.3  # between judgements: one of a storm over 2,000 nodes takes 0.15 s


class Outlooks:
    """Judges the domains again soon after evidence changed, else once a second; ``changed`` says that it did.

    ``behind`` tells that there is news which the outlook does not know yet.
    """

    def __init__(self, levels: Levels, stale_seconds: float) -> None:
        self._levels = levels
        self._stale_seconds = stale_seconds
        self._places: dict[str, tuple[Mapping[str, str], tuple[Domain, ...]]] = {}
        self._outlook = Outlook()
        self._judged = 0.0
        self.behind = True

    def changed(self) -> None:
        """Judge again at the next look that comes REST_SECONDS after the last judgement."""
        self.behind = True

    def at(self, gpu_nodes: Mapping[str, GPUNode], nodes: Mapping[str, Node], now: float) -> Outlook:
        """Return the outlook at ``now`` (seconds since 1970). A GPUNode whose node is gone says nothing."""
        if abs(now - self._judged) >= (REST_SECONDS if self.behind else _REFRESH_SECONDS):
            statuses = {name: gpu_node.status for name, gpu_node in gpu_nodes.items() if name in nodes}
            self._outlook = judge_domains(statuses, self._all(nodes), now, self._stale_seconds)
            self._judged, self.behind = now, False
        return self._outlook

    def _all(self, nodes: Mapping[str, Node]) -> Places:
        self._places = {name: self._place(name, node.metadata.labels) for name, node in nodes.items()}
        return {name: domains for name, (_, domains) in self._places.items()}

    def _place(self, name: str, labels: Mapping[str, str]) -> tuple[Mapping[str, str], tuple[Domain, ...]]:
        known = self._places.get(name)
        if known is not None and known[0] == labels:
            return known
        return labels, domains_of(name, labels, self._levels)
