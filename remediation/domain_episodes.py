"""Episodes about domains: one for the part that many nodes share, in place of one for each node. Pure.

Such an episode changes no node and moves no pod, in any mode: which part of a rack or a leaf is broken is a guess until
somebody has looked, and a guess must not act on hardware. It holds back the episodes of the nodes that it explains. A
person ends that by cancelling it.
"""

import math
from collections.abc import Collection
from typing import Final

import msgspec

from outrider.api.meta import MESSAGE_MAX, Condition, ObjectMeta
from outrider.api.reasons import ACCEPTED, DOMAIN_CLEARED, DOMAIN_SUSPECT
from outrider.api.remediation import (
    DOMAIN_NODES_MAX,
    DomainRef,
    DomainState,
    Phase,
    Remediation,
    RemediationSpec,
    RemediationStatus,
)
from outrider.api.times import parse_rfc3339, rfc3339
from outrider.health.causes import SharedCause
from outrider.health.domains import Outlook, Suspect
from outrider.topology import Domain
from remediation.common_cause import TROUBLE, cause_code, episodes_of, lifted
from remediation.config import Config
from remediation.decisions import Decision
from remediation.episodes import accepted, condition, free_name
from remediation.rungs import with_message
from remediation.world import World

SUSPECT: Final = "Suspect"  # condition
LOOK_AGAIN_SECONDS: Final = 10.0
_NAMED: Final = 5  # nodes named in a message
_NEXT: Final = {
    SharedCause.FABRIC: "look at the NVLink switches and the fabric manager of {where}",
    SharedCause.NETWORK: "look at the switch of {where} and its cables",
    SharedCause.POWER: "look at power and cooling of {where}",
    SharedCause.SILENCE: "look at the network of {where} and at the agents: kubectl get pods -A -o wide. "
    "Silence is no fault of hardware",
}


def openings(world: World, settled: Collection[Suspect]) -> list[Remediation]:
    """Return the episodes to open for suspects that are ``settled``: one for a domain and a kind of trouble."""
    specs = [
        _spec(suspect) for suspect in world.outlook.suspects if suspect in settled and not _handled(suspect, world)
    ]
    return [Remediation(metadata=ObjectMeta(name=free_name(spec, world)), spec=spec) for spec in specs]


def _spec(suspect: Suspect) -> RemediationSpec:
    ref = DomainRef(level=suspect.domain.level, name=suspect.domain.name)
    return RemediationSpec(cause=cause_code(suspect), domain=ref)


def _handled(suspect: Suspect, world: World) -> bool:
    known = episodes_of(suspect, world)
    return any(old.status.phase is Phase.OPEN and accepted(old) for old in known) or lifted(suspect, world)


def next_look(episode: Remediation, world: World, config: Config, now: float) -> Decision:
    """Return what to record about an open episode of a domain. It never holds an action."""
    status = msgspec.structs.replace(episode.status, mode=config.mode)
    if episode.spec.cancel:
        text = "cancelled by spec.cancel: nodes get episodes of their own where their evidence asks for it"
        return _close(status, Phase.CANCELLED, text)
    suspect = next((one for one in world.outlook.suspects if episode in episodes_of(one, world)), None)
    if suspect is not None:
        return _suspected(episode, status, suspect, now)
    if wider := _wider(episode, world):
        return _close(status, Phase.RESOLVED, f"explained by {wider.domain} now: the trouble goes beyond this domain")
    return _cleared(episode, status, config, now)


def _close(status: RemediationStatus, phase: Phase, message: str) -> Decision:
    return Decision(with_message(msgspec.structs.replace(status, phase=phase), message))


def _suspected(episode: Remediation, status: RemediationStatus, suspect: Suspect, now: float) -> Decision:
    state = DomainState(
        score=suspect.score,
        members=suspect.members,
        affected=len(suspect.nodes),
        nodes=list(suspect.nodes[:DOMAIN_NODES_MAX]),
        culprits=list(suspect.culprits[:DOMAIN_NODES_MAX]),
        since=rfc3339(suspect.since),
    )
    text = describe(suspect)
    entry = condition(episode, SUSPECT, "True", DOMAIN_SUSPECT, text[:MESSAGE_MAX], now)
    status = msgspec.structs.replace(status, domain=state, conditions=_conditions(episode, entry, now))
    return Decision(with_message(status, text), after_seconds=LOOK_AGAIN_SECONDS)


def _conditions(episode: Remediation, entry: Condition, now: float) -> list[Condition]:
    """Return the entry beside that of an accepted episode; the time of a change is kept where the value is the same."""
    known = {(old.type, old.status): old.last_transition_time for old in episode.status.conditions}
    taken = condition(episode, ACCEPTED, "True", DOMAIN_SUSPECT, "the cause was read from the GPUNodes", now)
    return [
        msgspec.structs.replace(one, last_transition_time=known.get((one.type, one.status), one.last_transition_time))
        for one in (taken, entry)
    ]


def _wider(episode: Remediation, world: World) -> Suspect | None:
    """Return the suspect that took over the nodes of an episode: trouble is put down to one domain at a time."""
    nodes = set(episode.status.domain.nodes) if episode.status.domain else set()
    same = (one for one in world.outlook.suspects if cause_code(one) == episode.spec.cause)
    return next((one for one in same if nodes and nodes <= set(one.nodes)), None)


def _cleared(episode: Remediation, status: RemediationStatus, config: Config, now: float) -> Decision:
    text = "too few of its nodes are in trouble to suspect what they share"
    entry = condition(episode, SUSPECT, "False", DOMAIN_CLEARED, text, now)
    status = msgspec.structs.replace(status, conditions=_conditions(episode, entry, now))
    left = parse_rfc3339(status.conditions[-1].last_transition_time) + config.domain_clear_seconds - now
    if left <= 0:
        return _close(status, Phase.RESOLVED, f"{text}; nodes that are still sick get episodes of their own")
    return Decision(with_message(status, f"{text}; ends when that lasts"), after_seconds=min(left, LOOK_AGAIN_SECONDS))


def describe(suspect: Suspect) -> str:
    """Return what happened, where, and what to do next."""
    count = f"{len(suspect.nodes)} of {suspect.members} nodes"
    seen = f"{', '.join(suspect.codes[:_NAMED])}{', ...' if len(suspect.codes) > _NAMED else ''}"
    head = f"{suspect.domain}: {count} show {TROUBLE[suspect.cause]} ({seen}) since {rfc3339(suspect.since)[:19]}Z."
    guilty = f" Guilty by its own word: {', '.join(suspect.culprits[:_NAMED])}." if suspect.culprits else ""
    nodes = f" Nodes: {', '.join(suspect.nodes[:_NAMED])}{', ...' if len(suspect.nodes) > _NAMED else ''}."
    where = ", ".join(suspect.culprits[:_NAMED]) or str(suspect.domain)
    held = " They get no episodes of their own for this; spec.cancel: true lets them." if suspect.hardware else ""
    return f"{head}{guilty}{nodes} Next: {_NEXT[suspect.cause].format(where=where)}.{held}"


class Patience:
    """Lets suspects ripen before their episodes open, and notices when the suspects are others than before."""

    def __init__(self, settle_seconds: float) -> None:
        self._settle_seconds = settle_seconds
        self._noticed: dict[tuple[Domain, SharedCause], float] = {}
        self._known: frozenset[Suspect] = frozenset()

    def settled(self, outlook: Outlook, now: float) -> list[Suspect]:
        """Return the suspects that were seen at every look for the time to settle."""
        keys = {(suspect.domain, suspect.cause) for suspect in outlook.suspects}
        self._noticed = {key: self._noticed.get(key, now) for key in keys}
        return [one for one in outlook.suspects if now - self._noticed[one.domain, one.cause] >= self._settle_seconds]

    def seconds_left(self, now: float) -> float:
        """Return the time until the next suspect has settled, infinity where all have."""
        ages = (now - since for since in self._noticed.values())
        return min((self._settle_seconds - age for age in ages if age < self._settle_seconds), default=math.inf)

    def changed(self, outlook: Outlook) -> bool:
        """Tell whether the suspects changed since the last call: nodes that they held back need a look then."""
        before, self._known = self._known, frozenset(outlook.suspects)
        return before != self._known
