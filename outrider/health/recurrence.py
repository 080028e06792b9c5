"""When a program's faults are the hardware's: they stay on one part of one GPU while the programs change. Pure.

A fault of the program follows the program: to another GPU, to other multiprocessors, to the other ranks of its job at
the same second. A fault of the hardware stays where it is while jobs come and go. So a job accuses a part of a GPU only
where all its faults of one code on this node are on that part, and the part is suspect once enough jobs accuse it.

Sources: the Xid catalogue's "application or hardware" for 13 and 31, and NVSentinel's rules: Xid 13
on the same GPC and TPC, Xid 31 on the same GPU, twice within 24 hours. For the codes that a killed program leaves too
(43, 45 and the rest), a third job is asked for: our own decision.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from outrider.api.gpunode import SubjectKind, Verdict
from outrider.health.catalogue import Catalogue, Clears
from outrider.health.families import CLEANUP, FOLLOWING, family
from outrider.health.findings import Evidence, Time, seen
from outrider.health.incidents import near

SUSPECT: Final = "gpu/suspect"
SOURCE: Final = "recurrence"
WINDOW_SECONDS: Final = 86_400.0
ACCUSATIONS_MAX: Final = 256
_BY_UNIT: Final = ("xid/13",)  # its line names the multiprocessor, so another one is another place
_MULTIPROCESSOR: Final = "GPC "  # how such a unit begins; other words name a MIG instance
_JOBS_NEEDED: Final = {"xid/13": 2, "xid/31": 2}
_JOBS_OTHERWISE: Final = 3


class Accusation(msgspec.Struct, frozen=True, kw_only=True):
    """One job's faults of one code on this node, and the one place where they all were."""

    code: str
    job: Annotated[str, msgspec.Meta(min_length=1)]
    owner: str
    """UUID of the GPU; empty once the job failed in two places: then it accuses none."""
    unit: str = ""
    last_seen: Time


def told(evidence: Evidence, findings: Iterable[Evidence], catalogue: Catalogue) -> Accusation | None:
    """Return what new evidence says against a GPU; None where it is no fault of a program or nobody knows the job.

    A job that nobody knows may be any of those known, so it adds none. A clean-up (Xid 45) says nothing where other
    evidence on the node tells what it cleaned up after.
    """
    if not evidence.job or not _of_a_program(evidence, catalogue):
        return None
    if evidence.code == CLEANUP and any(_explains(other, evidence) for other in findings):
        return None
    unit = evidence.unit if evidence.code in _BY_UNIT else ""
    if evidence.code in _BY_UNIT and not unit.startswith(_MULTIPROCESSOR):
        return None  # a line that does not say where
    return Accusation(
        code=evidence.code, job=evidence.job, owner=evidence.owner, unit=unit, last_seen=evidence.last_seen
    )


def _of_a_program(evidence: Evidence, catalogue: Catalogue) -> bool:
    row = catalogue.of(evidence.code)
    passing = row.verdict is Verdict.RESTART_APP and row.clears is Clears.TIME
    return evidence.subject is SubjectKind.GPU and (passing or evidence.code == CLEANUP)


def _explains(other: Evidence, evidence: Evidence) -> bool:
    return family(other) != FOLLOWING and other.code.startswith(("xid/", "sxid/")) and near(other, evidence)


def remembered(known: Iterable[Accusation], new: Iterable[Accusation], now: float) -> list[Accusation]:
    """Return all accusations of the last 24 hours, one for each job and code; a second place takes the first away.

    Those that are yet to come by their times (the clock was set back) are taken as of now.
    """
    merged: dict[tuple[str, str], Accusation] = {}
    for one in (one if one.last_seen <= now else msgspec.structs.replace(one, last_seen=now) for one in (*known, *new)):
        before = merged.get((one.code, one.job))
        merged[one.code, one.job] = one if before is None else _joined(before, one)
    recent = [one for one in merged.values() if now - one.last_seen < WINDOW_SECONDS]
    latest = sorted(recent, key=lambda one: (one.last_seen, one.code, one.job))[-ACCUSATIONS_MAX:]
    return sorted(latest, key=lambda one: (one.code, one.job))


def _joined(one: Accusation, other: Accusation) -> Accusation:
    last_seen = max(one.last_seen, other.last_seen)
    same = (one.owner, one.unit) == (other.owner, other.unit)
    return msgspec.structs.replace(
        one, last_seen=last_seen, owner=one.owner if same else "", unit=one.unit if same else ""
    )


def suspects(accusations: Iterable[Accusation], now: float) -> list[Evidence]:
    """Return a finding for each GPU that enough jobs accuse at ``now``, seconds since 1970."""
    places: dict[tuple[str, str, str], list[Accusation]] = {}
    for one in accusations:
        if one.owner and now - one.last_seen < WINDOW_SECONDS:
            places.setdefault((one.owner, one.code, one.unit), []).append(one)
    needed = {place: _JOBS_NEEDED.get(place[1], _JOBS_OTHERWISE) for place in places}
    guilty = {place: jobs for place, jobs in places.items() if len(jobs) >= needed[place]}
    return [_suspect(uuid, guilty) for uuid in sorted({place[0] for place in guilty})]


def _suspect(uuid: str, guilty: Mapping[tuple[str, str, str], Sequence[Accusation]]) -> Evidence:
    own = {place: jobs for place, jobs in guilty.items() if place[0] == uuid}
    words = [
        f"{code} in {len(jobs)} jobs within 24 h" + (f", each time on {unit}" if unit else "")
        for (_, code, unit), jobs in sorted(own.items())
    ]
    last_seen = max(one.last_seen for jobs in own.values() for one in jobs)
    return seen(SUSPECT, last_seen, subject=SubjectKind.GPU, subject_id=uuid, line="; ".join(words), source=SOURCE)
