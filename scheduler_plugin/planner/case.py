"""One gang at one moment: its pods sorted by what they need, beside the snapshot and the rules that decide."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacementStatus, PlacementState, RankAssignment
from outrider.api.names import TRACEPARENT_ANNOTATION
from outrider.api.times import parse_rfc3339
from outrider.workloads import Size, gated, rank_of, size_of
from scheduler_plugin.cluster.members import GangState, gone, managed, member
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.placing.gang import Gang
from scheduler_plugin.placing.room import usable
from scheduler_plugin.rules import LONGEST_SECONDS, Rules

_OWNER_SECONDS: Final = 10.0  # a pod older than this whose job is still not known is placed on its own
_ASSEMBLY_SECONDS: Final = 5.0  # a controller takes so long to create the pods of a large gang
DID_NOT_BIND: Final = "a pod planned there did not start in time"


class Case(msgspec.Struct, frozen=True):
    """What the next step of a gang depends on. ``pods`` are those to run, ``unbound`` those of them without a node.

    ``newcomers`` have no rank in the plan; ``strays`` have one, but their node is lost or refused them. ``old`` is the
    plan by pod UID, ``ranks`` the rank of every pod. ``now`` is in seconds since 1970.
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

    @property
    def fresh(self) -> bool:
        """True while nothing of the gang was released: then it may be planned anew as a whole."""
        bound = len(self.unbound) < len(self.pods)
        return not bound and not any(pod.metadata.uid in self.old and not gated(pod) for pod in self.unbound)

    @property
    def seats(self) -> int:
        """Pods that run together: the job's own number, else those that are there."""
        return max(self.size.pods, len(self.pods), 1)

    @property
    def owner_pending(self) -> bool:
        """True while the job that owns the pods may still arrive by its own watch."""
        return self.gang.owner is None and any(_age(pod, self.now) < _OWNER_SECONDS for pod in self.unbound)

    @property
    def assembling(self) -> bool:
        """True while missing pods are no news: the controller is still creating them."""
        return any(_age(pod, self.now) < _ASSEMBLY_SECONDS for pod in self.unbound)

    @property
    def traceparent(self) -> str:
        """Context of the job's trace, empty where the webhook left none."""
        annotations = (pod.metadata.annotations.get(TRACEPARENT_ANNOTATION, "") for pod in self.gang.pods)
        return next((context for context in annotations if context), "")

    @property
    def excluded(self) -> frozenset[str]:
        """Nodes that this gang has tried in vain, those of strays whose time is over included."""
        tried = {one.domain for one in self.status.rejected if one.reason == DID_NOT_BIND}
        if expired(self.status, self.now):
            tried |= {self.old[pod.metadata.uid].node for pod in self.strays if _refused(pod)}
        return frozenset(tried)

    def ask(self, pods: Sequence[Pod]) -> Gang:
        """Return pods as members to place. Raises BadQuantity."""
        members = tuple(member(pod, self.ranks[pod.metadata.uid]) for pod in pods)
        return Gang(self.gang.job.uid, members, self.excluded)

    def seat(self, pod: Pod, node: str) -> RankAssignment:
        """Return a pod's entry in the plan. Raises BadQuantity."""
        meta = pod.metadata
        gpus = member(pod, 0).gpus // 1000
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
        return kept + [self.seat(pod, pod.spec.node_name) for pod in strangers]


def case_of(gang: GangState, snapshot: Snapshot, rules: Rules, now: float) -> Case:
    """Return the gang's case at ``now`` (seconds since 1970)."""
    status = gang.placement.status if gang.placement else GangPlacementStatus()
    pods = [pod for pod in gang.pods if managed(pod) and not gone(pod)]
    unbound = [pod for pod in pods if not pod.spec.node_name]
    planned = status.state is not PlacementState.WAITING
    old = {rank.pod_uid: rank for rank in status.ranks} if planned else {}
    known = [pod for pod in unbound if pod.metadata.uid in old]
    return Case(
        gang=gang,
        snapshot=snapshot,
        rules=rules,
        now=now,
        size=size_of(gang.owner),
        status=status,
        pods=pods,
        unbound=unbound,
        newcomers=[pod for pod in unbound if pod.metadata.uid not in old],
        strays=[pod for pod in known if _stray(pod, old[pod.metadata.uid].node, status, snapshot, now)],
        old=old,
        ranks=_ranks(gang, pods, old),
    )


def expired(status: GangPlacementStatus, now: float) -> bool:
    """Return whether the plan's time to bind is over. A time that no planner wrote is: none, nonsense, or far ahead."""
    try:
        return not now < parse_rfc3339(status.expires_at or "") <= now + LONGEST_SECONDS
    except ValueError:
        return True


def _stray(pod: Pod, node: str, status: GangPlacementStatus, snapshot: Snapshot, now: float) -> bool:
    if not usable(snapshot.nodes.get(node), pod.spec.tolerations, now):
        return True
    return expired(status, now) and _refused(pod)


def _refused(pod: Pod) -> bool:
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
