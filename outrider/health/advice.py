"""What to do next about a finding, so that verdict and advice never contradict each other. Pure."""

from typing import Final

from outrider.api.gpunode import Verdict
from outrider.health.catalogue import XID_RECOVERY_PREFIX, Catalogue, Clears

OVER: Final = "nothing now: the node has booted since, or the driver took its advice back after a reset"


def next_step(code: str, verdict: Verdict, decided_by: str, catalogue: Catalogue) -> str:
    """Return the advice for a finding with this verdict.

    ``decided_by`` is the code that decided instead of the finding's own row (Judgement.deciders), empty for none: it
    is named, and its advice holds. A hard row that is still milder settles: it waits for what may decide.
    """
    row = catalogue.of(code)
    if decided_by:
        when = "the later one" if code.startswith(XID_RECOVERY_PREFIX) else "seen with it"
        return f"{decided_by}, {when}, decides: {catalogue.of(decided_by).advice}"
    if row.verdict.hard and not verdict.hard:
        if row.clears is Clears.RECOVERY:
            return f"wait for the next reading, which must show it too; then {row.advice}"
        return f"wait {row.settle_seconds:g} s for what may decide; then {row.advice}"
    return row.advice
