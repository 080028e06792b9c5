"""Programs that fail on all nodes of their job at once: incidents of the application, not of hardware. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.gpunode import Finding
from outrider.health.causes import SharedCause, is_echo, is_programs, shared_cause, times_of
from outrider.health.domains import SKEW_SECONDS, WINDOW_SECONDS
from outrider.health.testimony import Sighting, Statuses

CRASH_SECONDS: Final = 5.0  # published studies coalesce Xids of one cause over 5 s
CRASH_SHARE_MIN: Final = 0.8  # of a job's nodes; an agent may be blind


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """A program that failed on the nodes of its job at once: an incident of the application, not of hardware."""

    job: str
    at: float
    nodes: tuple[str, ...]
    codes: tuple[str, ...]


def crashes(statuses: Statuses, jobs: Mapping[str, Collection[str]], now: float) -> tuple[Crash, ...]:
    """Return the jobs whose program just failed on nearly all their nodes in the same seconds.

    ``jobs`` maps each job to its nodes. A job with a witness of a shared fault, or with a hard finding, is left out:
    then the program may be the victim.
    """
    found = (_crash(job, sorted(nodes), statuses, now) for job, nodes in sorted(jobs.items()))
    return tuple(crash for crash in found if crash)


def _crash(job: str, nodes: Sequence[str], statuses: Statuses, now: float) -> Crash | None:
    rows = [(node, statuses[node].findings) for node in nodes if node in statuses]
    failed = sorted(seen for node, findings in rows for seen in _failures(node, findings, now))
    program = [seen for seen in failed if not is_echo(seen.code)]
    if len(nodes) < 2 or not program or any(_suspicious(finding, now) for _, findings in rows for finding in findings):
        return None
    start = program[0].at
    together = [seen for seen in failed if abs(seen.at - start) <= CRASH_SECONDS]
    hit = {seen.node for seen in together}
    if len(hit) < max(2, CRASH_SHARE_MIN * len(nodes)):
        return None
    codes = tuple(sorted({seen.code for seen in together}))
    return Crash(job=job, at=together[0].at, nodes=tuple(sorted(hit)), codes=codes)


def _failures(node: str, findings: Iterable[Finding], now: float) -> Iterator[Sighting]:
    for finding in findings:
        if is_echo(finding.code) or is_programs(finding.code):
            yield from (Sighting(at, node, finding.code) for at in times_of(finding) if _just(at, now))


def _suspicious(finding: Finding, now: float) -> bool:
    """True for a finding that may have brought the program down."""
    cause = shared_cause(finding.code)
    shared = cause is not None and cause is not SharedCause.SILENCE and any(_just(at, now) for at in times_of(finding))
    return shared or finding.verdict.hard


def _just(at: float, now: float) -> bool:
    return now - WINDOW_SECONDS <= at <= now + SKEW_SECONDS
