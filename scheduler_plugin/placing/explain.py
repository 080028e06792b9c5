"""Why a gang waits, in words: what it needs, and what keeps each node from being it."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from outrider.api import reasons
from scheduler_plugin.cluster.members import PODS, Member
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.constraints import selects, untolerated
from scheduler_plugin.placing.room import fits

_FREE: Final = "healthy and free"
_WORDS: Final = {
    reasons.NODE_UNHEALTHY: "unhealthy",
    reasons.NODE_UNKNOWN_HEALTH: "of unknown health",
    reasons.NODE_QUARANTINED: "quarantined",
}
_LONGEST: Final = 1024  # characters, the limit of GangPlacement's message


def explain_refusal(
    members: Sequence[Member], snapshot: Snapshot, job_uid: str, excluded: frozenset[str], now: float
) -> str:
    """Return the counterfactual, such as "needs 3 nodes with 8 free GPUs; 2 healthy and free, 1 unhealthy (xid/79)"."""
    largest = max(members, key=lambda one: one.gpus)
    candidates = [view for view in snapshot.nodes.values() if view.gpus > 0 or not largest.gpus]
    counts = Counter(_state(view, largest, job_uid, excluded, now) for view in candidates)
    ordered = sorted(counts.items(), key=lambda entry: (entry[0] != _FREE, -entry[1], entry[0]))
    have = ", ".join(f"{count} {state}" for state, count in ordered) or "the cluster has no node with GPUs"
    return f"{_need(largest, len(members), candidates)}; {have}"[:_LONGEST]


def _need(largest: Member, count: int, candidates: Sequence[NodeView]) -> str:
    gpus = _number(largest.gpus)
    if not largest.gpus:
        return f"needs room for {_plural(count, 'pod')}"
    if largest.gpus * 2 > max((view.gpus for view in candidates), default=0):
        return f"needs {_plural(count, 'node')} with {gpus} free GPUs"
    return f"needs room for {_plural(count, 'pod')} with {gpus} free GPUs each"


def _state(view: NodeView, one: Member, job_uid: str, excluded: frozenset[str], now: float) -> str:
    refusal = view.refusal(now) if one.gpus else ""
    if refusal:
        words = _WORDS[refusal]
        return f"{words} ({view.judgement.cause})" if view.judgement.cause else words
    taint = untolerated(view.taints, one.tolerations)
    if taint is not None:
        return f"tainted ({taint.key})"
    if untolerated((), one.tolerations, cordoned=view.cordoned):
        return "cordoned"
    if not selects(one.node_selector, one.affinity, view.name, view.labels):
        return "outside the pods' node selector or affinity"
    return "tried before, without the pod starting there" if view.name in excluded else _usage(view, one, job_uid)


def _usage(view: NodeView, one: Member, job_uid: str) -> str:
    if one.gpus > view.gpus:
        return "with fewer GPUs"
    if one.gpus > view.free_gpus:
        return "in use"
    room = view.room(job_uid)
    if fits(one, room):
        return _FREE
    if fits(one, view.free):
        return "reserved for other gangs"
    lacking = next(name for name, amount in one.requests.items() if view.free.get(name, 0) < amount)
    return "full of pods" if lacking == PODS else f"short of {lacking}"


def _number(thousandths: int) -> str:
    return f"{thousandths / 1000:g}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
