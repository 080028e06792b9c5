"""Where each pod of the planner's gangs stands, from what the API server holds alone. Pure."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from outrider.api.gangplacement import GangPlacementStatus, PlacementState
from outrider.workloads import gated
from scheduler_plugin.cluster.members import GangState, gone, managed


class Stand(StrEnum):
    """Life of a pod, in order."""

    WAITING = "waiting"  # no node is meant for it
    PLANNED = "planned"  # it has a node in the plan, and its gate
    OFFERED = "offered"  # its gate is lifted: kube-scheduler may bind it
    BOUND = "bound"
    GONE = "gone"  # it had a node in the plan, and is finished, on its way out or deleted


class Entry(msgspec.Struct, frozen=True):
    """One pod. ``node`` is where it is, or is meant to go; empty for neither."""

    uid: str
    stand: Stand
    node: str = ""
    gang: str = ""


def ledger(gangs: Iterable[GangState]) -> dict[str, Entry]:
    """Return every pod of the gangs by its UID."""
    return {entry.uid: entry for gang in gangs for entry in _entries(gang)}


def stands(entries: Iterable[Entry]) -> dict[Stand, int]:
    """Return how many pods stand where, zeros included."""
    counts = Counter(entry.stand for entry in entries)
    return {stand: counts[stand] for stand in Stand}


def _entries(gang: GangState) -> Iterable[Entry]:
    status = gang.placement.status if gang.placement else GangPlacementStatus()
    ranks = {rank.pod_uid: rank.node for rank in status.ranks} if status.state is not PlacementState.WAITING else {}
    here = {pod.metadata.uid: pod for pod in gang.pods if managed(pod) or pod.metadata.uid in ranks}
    for uid, pod in here.items():
        planned = ranks.get(uid, "")
        if gone(pod):
            stand = Stand.GONE
        elif pod.spec.node_name:
            stand = Stand.BOUND
        elif planned:
            stand = Stand.PLANNED if gated(pod) else Stand.OFFERED
        else:
            stand = Stand.WAITING
        yield Entry(uid, stand, pod.spec.node_name or planned, gang.job.uid)
    for uid in ranks.keys() - here.keys():
        yield Entry(uid, Stand.GONE, ranks[uid], gang.job.uid)
