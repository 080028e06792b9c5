"""How findings end: states by good readings, passing events by time, damage by a reboot."""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from outrider.health.catalogue import Catalogue, Clears
from outrider.health.findings import Evidence, Findings, Key, join
from outrider.health.score import weight_left

FORGOTTEN: Final = 0.005  # half a point of the score: what costs less is no longer kept


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
    since = known.good_since if known.good_since is not None else now
    return None if now - since >= dwell_seconds else msgspec.structs.replace(known, good_since=since)


def after_time(findings: Findings, catalogue: Catalogue, now: float) -> dict[Key, Evidence]:
    """Return the findings without those that time has worn below half a point of the score."""
    return {key: known for key, known in findings.items() if not _faded(known, catalogue, now)}


def _faded(known: Evidence, catalogue: Catalogue, now: float) -> bool:
    row = catalogue.of(known.code)
    return row.clears is Clears.TIME and weight_left(known, row, now) < FORGOTTEN


def after_boot(findings: Findings, catalogue: Catalogue) -> dict[Key, Evidence]:
    """Return the findings that outlive a reboot: all but those that only a reboot clears."""
    return {key: known for key, known in findings.items() if catalogue.of(known.code).clears is not Clears.BOOT}
