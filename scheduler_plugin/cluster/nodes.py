"""One node as the decisions see it: place, health, what is free and what is held for planned pods."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from outrider.api import reasons
from outrider.api.core import Node, Taint
from outrider.api.gpunode import GPUNode, Health, Mode, Verdict
from outrider.api.names import UNHEALTHY_TAINT
from outrider.topology import Domain, Place, clique_of, domains_of, place
from outrider.topology.domains import Path
from outrider.workloads import BadQuantity, milli
from outrider.workloads.resources import gpus_in, is_gpu
from scheduler_plugin.cluster.blackholes import Closure
from scheduler_plugin.cluster.guests import Guest
from scheduler_plugin.rules import Rules

Amounts = Mapping[str, int]  # thousandths by resource name
_FULL_SCORE: Final = 100
HEALTH_POINTS: Final = 6
PACKING_POINTS: Final = 3


class Judgement(msgspec.Struct, frozen=True, gc=False):
    """Whether the hardware may get new work. ``refusal`` is a text of outrider.api.reasons, empty where it may."""

    refusal: str = ""
    cause: str = ""
    score: int = _FULL_SCORE
    fresh_until: float = math.inf  # seconds since 1970; afterwards health is unknown


class Body(msgspec.Struct, frozen=True, gc=False):
    """What of a view follows from the Node alone, so that a change of health or of a pod does not read it again."""

    name: str
    place: Place
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    cordoned: bool
    allocatable: Amounts
    gpus: int
    domains: tuple[Domain, ...] = ()

    @property
    def tainted(self) -> bool:
        """True where the node carries our taint of unhealthy hardware."""
        return any(taint.key == UNHEALTHY_TAINT for taint in self.taints)


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """A node, computed once per change. ``holds`` has what planned, unbound pods will take, by job UID;
    ``uses`` what bound pods take, by the UID of their gang ("" for pods of none).

    ``usable_until`` (seconds since 1970) and ``gpu_room`` (thousandths by GPU resource, free and not held) answer most
    questions of filter in two comparisons; ``gpus``, ``free_gpus`` and ``spare_gpus`` sum over all GPU resources;
    ``preference`` is the node's own part of its score. ``guests`` are the pods that are there, or planned or nominated
    to be; ``suspect`` says which of the node's domains is, empty for none; ``closure`` is why pods fail there at once,
    ``rejected`` until when (seconds since 1970) a gang had better not go back there, by its UID.
    ``waits`` are the jobs among ``holds`` that only wait for the node: no plan has to give way to them.
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
    gpu_room: Amounts = {}
    uses: Mapping[str, Amounts] = {}
    guests: tuple[Guest, ...] = ()
    suspect: str = ""
    closure: Closure | None = None
    waits: frozenset[str] = frozenset()
    rejected: Mapping[str, float] = {}

    def refusal(self, now: float) -> str:
        """Return why the node may get no GPU work at ``now`` (seconds since 1970), empty where it may."""
        if self.judgement.refusal:
            return self.judgement.refusal
        if self.closed(now):
            return reasons.NODE_REJECTS
        return reasons.NODE_UNKNOWN_HEALTH if self.judgement.fresh_until < now else ""

    def closed(self, now: float) -> bool:
        """Return whether nothing new goes there at ``now`` (seconds since 1970), since pods fail there at once."""
        return self.closure is not None and now < self.closure.until

    def held_for_others(self, job_uid: str, resource: str, *, planned: bool = False) -> int:
        """Return the thousandths of a resource that other jobs hold here; with ``planned`` those with a plan only."""
        passed = {job_uid, *self.waits} if planned else {job_uid}
        return sum(amounts.get(resource, 0) for uid, amounts in self.holds.items() if uid not in passed)

    def room(self, job_uid: str) -> dict[str, int]:
        """Return what a pod of this job may take: free, less what other jobs hold."""
        room = dict(self.free)
        for uid, amounts in self.holds.items():
            if uid != job_uid:
                for name, amount in amounts.items():
                    room[name] = room.get(name, 0) - amount
        return room


class Company(msgspec.Struct, frozen=True, gc=False):
    """What other pods and nodes say about a node; the fields are those of its view."""

    guests: tuple[Guest, ...] = ()
    suspect: str = ""
    closure: Closure | None = None
    waits: frozenset[str] = frozenset()
    rejected: Mapping[str, float] = {}


ALONE: Final = Company()


def judge(body: Body, health: GPUNode | None, rules: Rules, heard: float) -> Judgement:
    """Return whether the node may get new GPU work, from its taints and its GPUNode.

    ``heard`` is when its agent was last there, in seconds since 1970.

    A node without GPUNode has no agent: allowed, unless ``require_gpu_node``. Mode Paused means that people want
    no action on the evidence, so it is shown but not acted on here either.
    """
    if health is None:
        unwatched = reasons.NODE_UNKNOWN_HEALTH if rules.require_gpu_node else ""
        return Judgement(refusal=reasons.NODE_UNHEALTHY if body.tainted else unwatched)
    status = health.status
    if health.spec.mode is Mode.PAUSED:
        return Judgement(cause=status.reason, score=status.score)
    return Judgement(_refusal(body, health), status.reason, status.score, heard + rules.stale_seconds)


def _refusal(body: Body, health: GPUNode) -> str:
    if health.spec.mode is Mode.QUARANTINED:
        return reasons.NODE_QUARANTINED
    if health.status.verdict.hard or health.status.verdict is Verdict.NO_NEW_WORK:
        return reasons.NODE_UNHEALTHY
    if body.tainted:
        return reasons.NODE_UNHEALTHY
    return reasons.NODE_UNKNOWN_HEALTH if health.status.health is Health.UNKNOWN else ""


def amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return quantities in thousandths; what is no quantity counts as nothing, so that it gets no work."""
    known: dict[str, int] = {}
    for name, text in quantities.items():
        try:
            known[name] = milli(text)
        except BadQuantity:
            known[name] = 0
    return known


def body_of(node: Node, rules: Rules) -> Body:
    """Return what follows from the Node alone."""
    allocatable = amounts(node.status.allocatable)
    return Body(
        name=node.metadata.name,
        place=place(node.metadata.name, node.metadata.labels, rules.levels),
        labels=node.metadata.labels,
        taints=tuple(node.spec.taints),
        cordoned=node.spec.unschedulable,
        allocatable=allocatable,
        gpus=gpus_in(allocatable, rules.gpu_resources),
        domains=domains_of(node.metadata.name, node.metadata.labels, rules.levels),
    )


def view(
    body: Body,
    health: GPUNode | None,
    uses: Mapping[str, Amounts],
    holds: Mapping[str, Amounts],
    rules: Rules,
    company: Company = ALONE,
    heard: float = -math.inf,
) -> NodeView:
    """Return the node's view. ``uses`` counts every bound pod, whoever bound it; ``heard`` as of ``judge``."""
    judgement = judge(body, health, rules, heard)
    free = _less(body.allocatable, uses.values())
    room = {name: amount for name, amount in free.items() if is_gpu(name, rules.gpu_resources)}
    free_gpus = sum(room.values())
    room = _less(room, holds.values())
    return NodeView(
        name=body.name,
        place=_place(body, health, rules),
        labels=body.labels,
        taints=body.taints,
        cordoned=body.cordoned,
        judgement=judgement,
        allocatable=body.allocatable,
        free=free,
        holds=holds,
        gpus=body.gpus,
        free_gpus=free_gpus,
        spare_gpus=sum(room.values()),
        usable_until=-math.inf if judgement.refusal or company.closure else judgement.fresh_until,
        preference=_preference(judgement.score, body.gpus, free_gpus),
        gpu_room=room,
        uses=uses,
        guests=company.guests,
        suspect=company.suspect,
        closure=company.closure,
        rejected=company.rejected,
        waits=company.waits,
    )


def _place(body: Body, health: GPUNode | None, rules: Rules) -> Place:
    """Return the node's place, by the NVLink domain that its GPUs report where they report one."""
    clique = clique_of(gpu.fabric for gpu in health.status.gpus) if health is not None else ""
    return place(body.name, body.labels, rules.levels, clique) if clique else body.place


def _less(amounts: Amounts, takers: Iterable[Amounts]) -> dict[str, int]:
    left = dict(amounts)
    for taken in takers:
        for name in left:
            left[name] -= taken.get(name, 0)
    return left


def renewed(old: NodeView, new: NodeView, rules: Rules) -> bool:
    """Return whether all that changed is that the same health was seen again, before the older look went stale.

    Agents say so every few seconds, and nobody needs to decide anew for it.
    """
    longer = new.judgement.fresh_until - old.judgement.fresh_until
    if not 0 <= longer <= rules.stale_seconds:
        return False
    same = msgspec.structs.replace(old.judgement, fresh_until=new.judgement.fresh_until)
    return msgspec.structs.replace(old, judgement=same, usable_until=new.usable_until) == new


def count_in_use(leaf_gpus: Counter[Path], view: NodeView | None, sign: int) -> None:
    """Add (1) or take away (-1) the GPUs in use of a node, in thousandths, from the sum of its leaf."""
    if view is not None and view.gpus != view.free_gpus:
        leaf_gpus[view.place.path] += sign * (view.gpus - view.free_gpus)


def _preference(score: int, gpus: int, free_gpus: int) -> int:
    """Return 0 to 9 points: hardware first, then nodes already in use, so that whole nodes stay free for gangs."""
    packing = PACKING_POINTS * (gpus - free_gpus) // max(gpus, 1)
    return max(0, min(HEALTH_POINTS, HEALTH_POINTS * score // _FULL_SCORE)) + max(0, min(PACKING_POINTS, packing))
