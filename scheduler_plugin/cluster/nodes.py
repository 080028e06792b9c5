"""One node as the decisions see it: place, health, what is free and what is held for planned pods."""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from outrider.api import reasons
from outrider.api.core import Node, Taint
from outrider.api.gpunode import GPUNode, Health, Mode, Verdict
from outrider.api.names import UNHEALTHY_TAINT
from outrider.api.times import parse_rfc3339
from outrider.topology import Place, place
from outrider.workloads import GPU, BadQuantity, milli
from scheduler_plugin.rules import Rules

Amounts = Mapping[str, int]  # thousandths by resource name
_FULL_SCORE: Final = 100
HEALTH_POINTS: Final = 6
PACKING_POINTS: Final = 3


class Judgement(msgspec.Struct, frozen=True):
    """Whether the hardware may get new work. ``refusal`` is a text of outrider.api.reasons, empty where it may."""

    refusal: str = ""
    cause: str = ""
    score: int = _FULL_SCORE
    fresh_until: float = math.inf  # seconds since 1970; afterwards health is unknown


class NodeView(msgspec.Struct, frozen=True):
    """A node, computed once per change. ``holds`` has what planned, unbound pods will take, by job UID.

    ``usable_until`` (seconds since 1970) and ``spare_gpus`` (thousandths, free and not held) answer most questions of
    filter in two comparisons; ``preference`` is the node's own part of its score.
    """

    name: str
    place: Place
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    cordoned: bool
    judgement: Judgement
    allocatable: Amounts
    free: Amounts
    holds: Mapping[str, Amounts]
    gpus: int
    free_gpus: int
    spare_gpus: int
    usable_until: float
    preference: int

    def refusal(self, now: float) -> str:
        """Return why the node may get no GPU work at ``now`` (seconds since 1970), empty where it may."""
        if self.judgement.refusal:
            return self.judgement.refusal
        return reasons.NODE_UNKNOWN_HEALTH if self.judgement.fresh_until < now else ""

    def held_for_others(self, job_uid: str, resource: str) -> int:
        """Return the thousandths of a resource that other jobs than this one hold here."""
        return sum(amounts.get(resource, 0) for uid, amounts in self.holds.items() if uid != job_uid)

    def room(self, job_uid: str) -> dict[str, int]:
        """Return what a pod of this job may take: free, less what other jobs hold."""
        room = dict(self.free)
        for uid, amounts in self.holds.items():
            if uid != job_uid:
                for name, amount in amounts.items():
                    room[name] = room.get(name, 0) - amount
        return room


def judge(node: Node, health: GPUNode | None, rules: Rules) -> Judgement:
    """Return whether the node may get new GPU work, from its taints and its GPUNode.

    A node without GPUNode has no agent: allowed, unless ``require_gpu_node``. Mode Paused means that people want
    no action on the evidence, so it is shown but not acted on here either.
    """
    if health is None:
        tainted = any(taint.key == UNHEALTHY_TAINT for taint in node.spec.taints)
        unwatched = reasons.NODE_UNKNOWN_HEALTH if rules.require_gpu_node else ""
        return Judgement(refusal=reasons.NODE_UNHEALTHY if tainted else unwatched)
    status = health.status
    if health.spec.mode is Mode.PAUSED:
        return Judgement(cause=status.reason, score=status.score)
    return Judgement(_refusal(node, health), status.reason, status.score, _fresh_until(health, rules.stale_seconds))


def _refusal(node: Node, health: GPUNode) -> str:
    if health.spec.mode is Mode.QUARANTINED:
        return reasons.NODE_QUARANTINED
    if health.status.verdict.hard or health.status.verdict is Verdict.NO_NEW_WORK:
        return reasons.NODE_UNHEALTHY
    if any(taint.key == UNHEALTHY_TAINT for taint in node.spec.taints):
        return reasons.NODE_UNHEALTHY
    return reasons.NODE_UNKNOWN_HEALTH if health.status.health is Health.UNKNOWN else ""


def _fresh_until(health: GPUNode, stale_seconds: float) -> float:
    try:
        return parse_rfc3339(health.status.observed_at or "") + stale_seconds
    except ValueError:
        return -math.inf  # never observed, or a time that is no time: unknown


def amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return quantities in thousandths; what is no quantity counts as nothing, so that it gets no work."""
    known: dict[str, int] = {}
    for name, text in quantities.items():
        try:
            known[name] = milli(text)
        except BadQuantity:
            known[name] = 0
    return known


def view(node: Node, health: GPUNode | None, used: Amounts, holds: Mapping[str, Amounts], rules: Rules) -> NodeView:
    """Return the node's view. ``used`` sums the requests of every bound pod, whoever bound it."""
    judgement = judge(node, health, rules)
    allocatable = amounts(node.status.allocatable)
    free = {name: amount - used.get(name, 0) for name, amount in allocatable.items()}
    gpus, free_gpus = allocatable.get(GPU, 0), free.get(GPU, 0)
    return NodeView(
        name=node.metadata.name,
        place=place(node.metadata.name, node.metadata.labels, rules.levels),
        labels=node.metadata.labels,
        taints=tuple(node.spec.taints),
        cordoned=node.spec.unschedulable,
        judgement=judgement,
        allocatable=allocatable,
        free=free,
        holds=holds,
        gpus=gpus,
        free_gpus=free_gpus,
        spare_gpus=free_gpus - sum(held.get(GPU, 0) for held in holds.values()),
        usable_until=-math.inf if judgement.refusal else judgement.fresh_until,
        preference=_preference(judgement.score, gpus, free_gpus),
    )


def _preference(score: int, gpus: int, free_gpus: int) -> int:
    """Return 0 to 9 points: hardware first, then nodes already in use, so that whole nodes stay free for gangs."""
    packing = PACKING_POINTS * (gpus - free_gpus) // max(gpus, 1)
    return max(0, min(HEALTH_POINTS, HEALTH_POINTS * score // _FULL_SCORE)) + max(0, min(PACKING_POINTS, packing))
