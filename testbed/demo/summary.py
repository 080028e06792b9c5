"""The end of the demo in numbers. Pure."""

import msgspec

from testbed.demo.scenario import Fault, Timed
from testbed.demo.story import Curve

# Phase of a moment -> the words of the summary, in the order of the table.
_MILESTONES = {
    "seen": "fault seen by the node agent",
    "tainted": "node tainted",
    "checkpoint asked": "checkpoint asked of all workers",
    "checkpoint Done": "checkpoint acknowledged",
    "evicted": "worker leaves the sick node",
    "planned": "new place planned",
    "new pod": "new pod created",
    "running": "new pod runs",
}


class Figures(msgspec.Struct, frozen=True):
    """What the run measured."""

    milestones: list[tuple[str, float]]
    """Words, and seconds after the fault."""
    fault_to_step_s: float
    steps_lost: int
    resumed_from: int
    pods_touched: int
    trace_id: str


def figures(fault: Fault, found: Curve, moments: list[Timed], pods_seen: int, job_uid: str) -> Figures:
    """Reduce a run to its figures."""
    first: dict[str, float] = {}
    for timed in moments:
        if timed.unix >= fault.unix:
            first.setdefault(timed.moment.phase, timed.unix - fault.unix)
    milestones = [(words, first[phase]) for phase, words in _MILESTONES.items() if phase in first]
    return Figures(
        milestones=sorted(milestones, key=lambda milestone: milestone[1]),
        fault_to_step_s=found.first.unix - fault.unix,
        steps_lost=found.steps_lost,
        resumed_from=found.resumed_from,
        pods_touched=pods_seen - len(fault.before.pods),
        trace_id=job_uid.replace("-", ""),
    )


def table(fault: Fault, result: Figures) -> list[str]:
    """Lines of the summary."""
    rows = [*result.milestones, (f"first step after checkpoint {result.resumed_from}", result.fault_to_step_s)]
    lines = ["", f"From the fault on {fault.node} to the next step:", ""]
    previous = 0.0
    for words, seconds in rows:
        lines.append(f"  {seconds:7.1f} s   +{max(0.0, seconds - previous):5.1f} s   {words}")
        previous = seconds
    return [
        *lines,
        "",
        f"  steps lost      {result.steps_lost}",
        f"  pods touched    {result.pods_touched} (worker {fault.victim.index})",
        f"  nodes touched   {fault.node}, tainted until it is repaired",
        f"  trace           {result.trace_id}",
    ]
