"""One gang at one moment: its pods sorted by what they need, beside the snapshot and the rules that decide."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacementStatus, PlacementState, RankAssignment
from outrider.api.names import INPOD_INIT_CONTAINER, TRACEPARENT_ANNOTATION
from outrider.api.times import parse_rfc3339
from outrider.workloads import (
    BEFORE,
    Seat,
    Size,
    awaited,
    gated,
    gpus_of,
    rank_of,
    role_of,
    seats_of,
    size_of,
    stage_of,
    topology_ask,
)
from scheduler_plugin.cluster.members import GangState, Member, gone, managed, member, seat_member
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.reservations import seats
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.turns import Turn, priority_of, recorded, turn
from scheduler_plugin.placing.gang import Gang
from scheduler_plugin.placing.room import usable
from scheduler_plugin.rules import Rules

_OWNER_SECONDS: Final = 10.0  # a pod older than this whose job is still not known is placed on its own
_ASSEMBLY_SECONDS: Final = 5.0  # a controller takes so long to create the pods of a large gang
_ROUNDED_SECONDS: Final = 1.0  # what a time may gain on its way through text, and between two planners' clocks
DID_NOT_BIND: Final = "a pod planned there did not start in time"


class Case(msgspec.Struct, frozen=True):
    """What the next step of a gang depends on. ``pods`` are those to run, ``unbound`` those of them without a node.

    ``newcomers`` have no rank in the plan; ``strays`` have one, but their node is lost or refused them. ``old`` is the
    plan by pod UID, ``ranks`` the rank of every pod. ``to_come`` are the pods of a staged gang that its controller
    makes once others are scheduled, and ``lost_seats`` those of them whose node is not theirs any more. ``now`` is in
    seconds since 1970.
    """

    gang: GangState
    snapshot: Snapshot
    rules: Rules
    now: float
    size: Size
    status: GangPlacementStatus
    pods: list[Pod]
    unbound: list[Pod]
    newcomers: list[Pod]
    strays: list[Pod]
    old: Mapping[str, RankAssignment]
    ranks: Mapping[str, int]
    to_come: tuple[Member, ...] = ()
    lost_seats: tuple[Member, ...] = ()

    @property
    def core(self) -> list[Pod]:
        """The pods that run together: without those that end before the gang starts."""
        return [pod for pod in self.pods if stage_of(pod, self.gang.owner) != BEFORE]

    @property
    def prelude(self) -> list[Pod]:
        """Pods without a place that end before the gang starts; each is placed on its own."""
        return [pod for pod in self.newcomers if stage_of(pod, self.gang.owner) == BEFORE]

    @property
    def fresh(self) -> bool:
        """True while nothing of the gang was released: then it may be planned anew as a whole."""
        return not any(pod.spec.node_name or (pod.metadata.uid in self.old and not gated(pod)) for pod in self.core)

    @property
    def running(self) -> bool:
        """True once a pod of the gang has begun to work: from then on the others are worth keeping."""
        return any(pod.status.phase in ("Running", "Succeeded") for pod in self.gang.pods)

    @property
    def growing(self) -> bool:
        """True where an elastic gang has its plan, and pods beyond it wait for more room."""
        return bool(self.size.min) and not self.strays and any(pod.metadata.uid in self.old for pod in self.core)

    @property
    def settled(self) -> bool:
        """True where every pod has its place, and every pod to come its seat."""
        return not (self.newcomers or self.strays or self.lost_seats)

    @property
    def short(self) -> int:
        """Pods that must exist before the gang starts, and do not yet."""
        least = self.size.pods if self.assembling else self.size.least
        return max(least - self.present - len(self.to_come), 0)

    @property
    def present(self) -> int:
        """Pods that exist, those that have done their work included."""
        return sum(stage_of(pod, self.gang.owner) != BEFORE for pod in self.gang.pods)

    @property
    def resting(self) -> float:
        """Seconds until the gang, whose last plan did not bind, is planned again; 0 where it may be at once.

        A time further ahead than any pause was written before the clock was set back, or by hand.
        """
        try:
            left = parse_rfc3339(self.status.retry_at or "") - self.now
        except ValueError:
            return 0.0
        return left if 0 < left <= self.rules.retry_cap_seconds + _ROUNDED_SECONDS else 0.0

    @property
    def expired(self) -> bool:
        """True where the plan's time to bind is over."""
        return expired(self.status, self.now, self.rules)

    @property
    def priority(self) -> int:
        """The highest priority among the gang's pods."""
        return priority_of(self.status, self.gang.pods)

    @property
    def turn(self) -> Turn:
        """The gang's place in the queue."""
        uid, patience = self.gang.job.uid, self.rules.patience_seconds
        return turn(uid, self.status, self.gang.pods, patience, self.now)

    @property
    def gang_size(self) -> int:
        """Pods that run together: the job's own number, else those that are there."""
        return max(self.size.pods, len(self.pods) + len(self.to_come), 1)

    @property
    def owner_pending(self) -> bool:
        """True while the job that owns the pods may still arrive by its own watch."""
        return (
            self.gang.owner is None
            and bool(self.size.unknown)
            and any(_age(pod, self.now) < _OWNER_SECONDS for pod in self.unbound)
        )

    @property
    def assembling(self) -> bool:
        """True while missing pods are no news: the controller is still creating them."""
        return any(_age(pod, self.now) < _ASSEMBLY_SECONDS for pod in self.unbound)

    @property
    def notes(self) -> tuple[str, ...]:
        """What in the pods, their owner or their annotations does not fit together, and what holds instead."""
        _, problem = topology_ask(self.pods, self.gang.owner)
        return tuple(note for note in (self.size.note, *self.gang.notes, problem) if note)

    @property
    def held_elsewhere(self) -> str:
        """Whose word the pods wait for beside the planner's (Kueue's, say); empty where no other gate holds one."""
        return awaited([pod for pod in self.core if not pod.spec.node_name])

    @property
    def admitted(self) -> list[Pod]:
        """Pods that seek a place, without those that another gate holds: no node is kept for them yet."""
        return [pod for pod in (*self.newcomers, *self.strays) if not awaited([pod])]

    @property
    def traceparent(self) -> str:
        """Context of the job's trace, empty where the webhook left none."""
        annotations = (pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, "") for pod in self.gang.pods)
        return next((context for context in annotations if context), "")

    @property
    def excluded(self) -> frozenset[str]:
        """Nodes that this gang has tried in vain, those of strays whose time is over included."""
        tried = {one.domain for one in self.status.rejected if one.reason == DID_NOT_BIND}
        if expired(self.status, self.now, self.rules):
            tried |= {self.old[pod.metadata.uid].node for pod in self.strays if turned_away(pod)}
        return frozenset(tried)

    def members(self, pods: Sequence[Pod]) -> tuple[Member, ...]:
        """Return pods as members to place. Raises BadQuantity."""
        return tuple(member(pod, self.ranks[pod.metadata.uid], self.gang.owner) for pod in pods)

    def gang_of(self, members: Sequence[Member]) -> Gang:
        """Return what is asked of a plan for these members."""
        ask, _ = topology_ask(self.pods, self.gang.owner)
        names = self.rules.gpu_resources
        counted = tuple(msgspec.structs.replace(one, gpu_resources=names) for one in members)
        return Gang(self.gang.job.uid, counted, self.excluded, ask)

    def assigned(self, pod: Pod, node: str) -> RankAssignment:
        """Return a pod's entry in the plan. Raises BadQuantity."""
        meta = pod.metadata
        gpus = gpus_of(pod, self.rules.gpu_resources)
        return RankAssignment(rank=self.ranks[meta.uid], pod=meta.name, pod_uid=meta.uid, node=node, gpus=gpus)

    def kept(self, lost: Sequence[Pod] = ()) -> list[RankAssignment]:
        """Return the ranks that stay, where they really are; a rank whose pod is gone keeps its place on record."""
        here = {pod.metadata.uid: pod for pod in self.pods}
        leaving = {pod.metadata.uid for pod in lost}
        current = set(self.ranks.values())
        kept = [
            msgspec.structs.replace(rank, node=_node(here.get(rank.pod_uid)) or rank.node)
            for rank in self.old.values()
            if rank.pod_uid not in leaving and (rank.pod_uid in here or rank.rank not in current)
        ]
        strangers = [pod for pod in self.pods if pod.spec.node_name and pod.metadata.uid not in self.old]
        return kept + [self.assigned(pod, pod.spec.node_name) for pod in strangers]


def case_of(gang: GangState, snapshot: Snapshot, rules: Rules, now: float) -> Case:
    """Return the gang's case at ``now`` (seconds since 1970). Raises BadQuantity."""
    status = gang.placement.status if gang.placement else GangPlacementStatus()
    pods = [pod for pod in gang.pods if managed(pod) and not gone(pod)]
    unbound = [pod for pod in pods if not pod.spec.node_name]
    planned = status.state is not PlacementState.WAITING
    old = {rank.pod_uid: rank for rank in status.ranks} if planned else {}
    known = [pod for pod in unbound if pod.metadata.uid in old]
    ranks = _ranks(gang, pods, old)
    to_come = _to_come(gang, ranks) if pods else ()
    case = Case(
        gang=gang,
        snapshot=snapshot,
        rules=rules,
        now=now,
        size=size_of(gang.owner, pods),
        status=status,
        pods=pods,
        unbound=unbound,
        newcomers=[pod for pod in unbound if pod.metadata.uid not in old],
        strays=[],
        old=old,
        ranks=ranks,
        to_come=to_come,
    )
    strays = [pod for pod in known if _stray(case, pod, old[pod.metadata.uid].node)]
    return msgspec.structs.replace(case, strays=strays, lost_seats=_lost(case) if planned else ())


def _to_come(gang: GangState, ranks: Mapping[str, int]) -> tuple[Member, ...]:
    """Return the members of a staged gang that its controller has not made yet."""
    here = {*ranks.values(), *(rank_of(pod, gang.owner) for pod in gang.pods)}
    wanted = [seat for seat in seats_of(gang.job, gang.owner) if seat.stage != BEFORE]
    first = min((seat.stage for seat in wanted), default=0)
    missing = [seat for seat in wanted if seat.rank not in here and seat.stage > first]
    return tuple(seat_member(gang.job, _admitted(_shaped(seat, gang.pods), gang.pods)) for seat in missing)


def _shaped(seat: Seat, pods: Sequence[Pod]) -> Seat:
    """Return the seat with the spec of a pod like it, where its controller does not tell what it will create."""
    if seat.pod is not None or not pods:
        return seat
    alike = next((pod for pod in pods if role_of(pod) == seat.role), pods[-1])
    bare = msgspec.structs.replace(alike.spec, affinity={}, node_name="")
    return msgspec.structs.replace(seat, pod=bare)


def _admitted(seat: Seat, pods: Sequence[Pod]) -> Seat:
    """Return the seat with the init container that our webhook will add to its pod, as it did to the gang's others."""
    ours = next((one for pod in pods for one in pod.spec.init_containers if one.name == INPOD_INIT_CONTAINER), None)
    spec = seat.pod
    if ours is None or spec is None or not gpus_of(Pod(spec=spec)) or ours in spec.init_containers:
        return seat
    added = msgspec.structs.replace(spec, init_containers=[*spec.init_containers, ours])
    return msgspec.structs.replace(seat, pod=added)


def _lost(case: Case) -> tuple[Member, ...]:
    """Return the members to come whose seats no plan holds, or on nodes that can't take them."""
    held = seats(case.status)
    return tuple(
        one
        for one in case.to_come
        if not usable(case.snapshot.nodes.get(held.get(one.rank, "")), one.tolerations, case.now)
    )


def expired(status: GangPlacementStatus, now: float, rules: Rules) -> bool:
    """Return whether the plan's time to bind is over.

    So is a time that no planner would write now: none, nonsense, or further ahead than any plan's (the clock was set
    back, or a person wrote it).
    """
    try:
        until = parse_rfc3339(status.expires_at or "")
    except ValueError:
        return True
    return not now < until <= now + rules.plan_seconds + _ROUNDED_SECONDS


def _stray(case: Case, pod: Pod, node: str) -> bool:
    view = case.snapshot.nodes.get(node)
    if view is None or not usable(view, pod.spec.tolerations, case.now):
        return True
    return _crowded(view, case) or (case.expired and turned_away(pod))


def _crowded(view: NodeView, case: Case) -> bool:
    """Return whether the node has too few GPUs for what is planned there, and this gang's plan is to give way.

    Two plans for one GPU are what is left of a leader that was stopped in the middle of a write.
    """
    mine, uid = view.holds.get(case.gang.job.uid, {}), case.gang.job.uid
    others = view.holds.keys() - view.waits - {uid}
    first = [view.holds[other] for other in others if _before(case, other)]
    return any(
        mine.get(name, 0) and sum(held.get(name, 0) for held in (mine, *first)) > view.free.get(name, 0)
        for name in view.gpu_room
    )


def _before(case: Case, other: str) -> bool:
    plan = case.snapshot.plan_of(other)
    if plan is None:
        return False
    rules, status = case.rules, plan.placement.status
    mine = recorded(case.gang.job.uid, case.status, rules.patience_seconds, case.now)
    return recorded(other, status, rules.patience_seconds, case.now) < mine


def turned_away(pod: Pod) -> bool:
    """Return whether kube-scheduler has tried the pod and found no node: only then is the plan to blame."""
    return any(
        one.type == "PodScheduled" and one.status == "False" and one.reason == "Unschedulable"
        for one in pod.status.conditions
    )


def _age(pod: Pod, now: float) -> float:
    try:
        return now - parse_rfc3339(pod.metadata.creation_timestamp or "")
    except ValueError:
        return _OWNER_SECONDS


def _node(pod: Pod | None) -> str:
    return pod.spec.node_name if pod else ""


def _ranks(gang: GangState, pods: Sequence[Pod], old: Mapping[str, RankAssignment]) -> dict[str, int]:
    """Return every pod's rank: its controller's number, else the one it was planned with, else a vacant one."""
    numbered: dict[int, str] = {}
    for pod in pods:
        own, known = rank_of(pod, gang.owner), old.get(pod.metadata.uid)
        wanted = known.rank if own is None and known else own
        if wanted is not None:
            numbered.setdefault(wanted, pod.metadata.uid)
    ranks = {uid: rank for rank, uid in numbered.items()}
    vacant = (number for number in range(len(pods) + len(ranks)) if number not in numbered)
    rest = [pod for pod in pods if pod.metadata.uid not in ranks]
    ordered = sorted(rest, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
    return ranks | {pod.metadata.uid: next(vacant) for pod in ordered}
