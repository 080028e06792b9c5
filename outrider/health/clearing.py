"""How findings end: states by good readings, passing events by time, damage by a reboot or a reset. Pure.

Every finding has a way back. Where the regular one can't come any more (a probe that was switched off, a part that was
taken out), absence clears it after a day.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from outrider.api.gpunode import Verdict
from outrider.health.catalogue import XID_RECOVERY_PREFIX, Catalogue, Clears, Fault
from outrider.health.findings import Evidence, Findings, Key, join
from outrider.health.kernel.records import DRILL
from outrider.health.score import weight_left

FORGOTTEN: Final = 0.005  # half a point of the score: what costs less is no longer kept
GONE_SECONDS: Final = 86_400.0  # a part that its probe sees neither well nor ill for so long is not there any more
_NOTHING_WANTED: Final = f"{XID_RECOVERY_PREFIX}0"  # the driver takes its advice back: the reset has helped


def after_reading(
    findings: Findings,
    source: str,
    bad: Iterable[Evidence],
    readable: Collection[str],
    now: float,
    dwell_seconds: float,
) -> dict[Key, Evidence]:
    """Return the findings after a probe of states reported all that is bad now.

    ``readable`` holds the subject ids that were read well, "" for the node. A state that is seen again only moves its
    ``last_seen``; one that comes back after good readings counts once more. A state that is not seen is cleared after
    ``dwell_seconds`` of good readings of its subject; silence about the subject starts the dwell anew.
    """
    present = {evidence.key: evidence for evidence in bad}
    kept: dict[Key, Evidence] = {}
    for key, known in findings.items():
        after = known if known.source != source else _state(known, present.pop(key, None), readable, now, dwell_seconds)
        if after is not None:
            kept[key] = after
    for key, evidence in present.items():
        kept[key] = join(kept[key], evidence) if key in kept else evidence
    return kept


def _state(
    known: Evidence, again: Evidence | None, readable: Collection[str], now: float, dwell_seconds: float
) -> Evidence | None:
    if again is not None:
        returned = 1 if known.good_since is not None else 0
        return msgspec.structs.replace(
            again, first_seen=known.first_seen, count=known.count + returned, good_since=None
        )
    if known.owner not in readable:
        return msgspec.structs.replace(known, good_since=None) if known.good_since is not None else known
    since = min(known.good_since, now) if known.good_since is not None else now  # the clock may have been set back
    return None if now - since >= dwell_seconds else msgspec.structs.replace(known, good_since=since)


def after_absence(
    findings: Findings, source: str, named: Collection[str], catalogue: Catalogue, now: float
) -> dict[Key, Evidence]:
    """Return the findings without the states of parts that are gone.

    ``source`` has read without being blind, and ``named`` has all owners that it called well or ill.
    """

    def gone(known: Evidence) -> bool:
        if known.source != source or known.owner in named or now - known.last_seen < GONE_SECONDS:
            return False
        return catalogue.of(known.code).clears is Clears.RECOVERY

    return {key: known for key, known in findings.items() if not gone(known)}


def after_time(findings: Findings, catalogue: Catalogue, now: float) -> dict[Key, Evidence]:
    """Return the findings without those that time has worn below half a point of the score.

    What never weighed that much is kept for one half life. What is yet to come by its times (the clock was set back)
    is taken as of now, so that it fades and settles like everything else.
    """
    return {key: _not_to_come(known, now) for key, known in findings.items() if not _faded(known, catalogue, now)}


def _not_to_come(known: Evidence, now: float) -> Evidence:
    if max(known.first_seen, known.last_seen) <= now:  # a state keeps its first, and moves its last with each reading
        return known
    return msgspec.structs.replace(known, first_seen=min(known.first_seen, now), last_seen=min(known.last_seen, now))


def _faded(known: Evidence, catalogue: Catalogue, now: float) -> bool:
    row = catalogue.of(known.code)
    if row.half_life_seconds is None:
        return False
    if row.weight < FORGOTTEN:
        return now - known.last_seen >= row.half_life_seconds
    return weight_left(known, row, now) < FORGOTTEN


def after_boot(findings: Findings, catalogue: Catalogue, events: Collection[str] = ()) -> dict[Key, Evidence]:
    """Return the findings that outlive a reboot: all but those that only a reboot clears.

    ``events`` names the sources that tell of events: none of their readings can clear a state, so a reboot does.
    """

    def ends(known: Evidence) -> bool:
        clears = catalogue.of(known.code).clears
        return clears is Clears.BOOT or (clears is Clears.RECOVERY and known.source in events)

    return {key: known for key, known in findings.items() if not ends(known)}


def after_reset(findings: Findings, catalogue: Catalogue) -> dict[Key, Evidence]:
    """Return the findings without the damage that a reset of the GPU repaired.

    The driver says so itself: an Xid 154 with "none" comes when a GPU that wanted a reset has had it. What a reset
    can't repair (verdicts reboot and replace) and what came later stays. A drill ends nothing but drills.
    """
    reset = {known.owner: known for known in findings.values() if known.code == _NOTHING_WANTED}
    if not reset:
        return dict(findings)

    def repaired(known: Evidence) -> bool:
        told = reset.get(known.owner) if known.owner else None
        if told is None or (_is_drill(told) and not _is_drill(known)):
            return False
        return known.last_seen < told.last_seen and reset_repairs(catalogue.of(known.code))

    return {key: known for key, known in findings.items() if not repaired(known)}


def _is_drill(known: Evidence) -> bool:
    return known.line.startswith(DRILL)


def reset_repairs(row: Fault) -> bool:
    """True for a fault that a reset of its GPU repairs, as the driver says by an Xid 154 with "none"."""
    return row.verdict.severity <= Verdict.RESET.severity and row.clears is Clears.BOOT


def after_switch_off(findings: Findings, catalogue: Catalogue, sources: Collection[str]) -> dict[Key, Evidence]:
    """Return the findings without states that none of the ``sources`` at work will ever read again."""
    return {
        key: known
        for key, known in findings.items()
        if known.source in sources or catalogue.of(known.code).clears is not Clears.RECOVERY
    }
