"""Domains under suspicion, as open Remediation episodes name them: no new gang goes there. Pure.

An episode about a domain says that many of its nodes are in trouble at once, so that what they share may be the cause,
and the nodes that still look well are next. It holds in every mode of remediation, since placing elsewhere acts on no
hardware, until the episode ends or a person cancels it. One about the whole cluster refuses nothing: there is no
elsewhere, and each node's own health holds anyway.
"""

from collections.abc import Iterable, Mapping

from outrider.api.remediation import Phase, Remediation
from outrider.topology import CLUSTER_LEVEL, Domain


def suspected(episode: Remediation | None) -> Domain | None:
    """Return the domain that an episode keeps new gangs out of, None where it does not."""
    if episode is None or episode.spec.cancel or episode.status.phase is not Phase.OPEN:
        return None
    ref = episode.spec.domain
    return Domain(ref.level, ref.name) if ref is not None and ref.level != CLUSTER_LEVEL else None


def suspicion(domains: Iterable[Domain], episodes: Mapping[Domain, Mapping[str, Remediation]]) -> str:
    """Return the first of a node's domains that is suspect with why, for people; empty where none is."""
    for domain in domains:
        known = episodes.get(domain)
        if known:
            causes = sorted({episode.spec.cause for episode in known.values()})
            return f"{domain}: {', '.join(causes)}"
    return ""
