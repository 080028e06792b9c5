"""What keeps a member off a node beyond the node itself: its volumes, other pods, and domains under suspicion. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from outrider.api import reasons
from scheduler_plugin.cluster.members import Member
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.snapshot import Snapshot
from scheduler_plugin.cluster.volumes import Reach
from scheduler_plugin.placing.peers import Peers

VOLUMES: Final = "out of reach of the pods' volumes"
OTHER_PODS: Final = "kept free of such pods by host ports, pod affinity or topology spread"


class Checks:
    """Obstacles for one gang's members on one snapshot; members that a plan places count for the next.

    ``tolerated`` are suspicions (NodeView.suspect) that refuse nothing: those of domains where the gang runs already.
    ``joining`` is true for members of a gang that runs: spares of a domain are for them.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        members: Collection[Member],
        job_uid: str = "",
        tolerated: Collection[str] = (),
        *,
        joining: bool = False,
    ) -> None:
        self.peers = Peers(snapshot, members)
        mine = (job_uid, "") if joining else (job_uid,)
        self._kept = frozenset(name for name, one in snapshot.kept.items() if one.gang not in mine)
        self._tolerated = frozenset(tolerated)
        self._reaches = {
            one.uid: snapshot.storage.reach(one.guest.namespace, one.guest.claims)
            for one in members
            if one.guest.claims
        }
        self._fought_over = _fought_over(snapshot, members, self._reaches)

    def kind(self, one: Member) -> tuple[object, ...]:
        """Return what makes two members interchangeable for placement."""
        reach = self._reaches.get(one.uid)
        return one.shape(), reach.kind if reach is not None else None

    def against(self, view: NodeView, one: Member) -> str:
        """Return what keeps the member off the node, in words that fit many nodes; empty where nothing does."""
        if view.suspect and view.suspect not in self._tolerated:
            return f"{reasons.NODE_SUSPECT} ({view.suspect})"
        if view.name in self._kept and one.needs_gpu:
            return reasons.NODE_SPARE
        reach = self._reaches.get(one.uid)
        if reach is not None and (self._fought_over or not reach.allows(view.name, view.labels)):
            return reach.problem or self._fought_over or VOLUMES
        return OTHER_PODS if self.peers.matter and not self.peers.allows(one, view) else ""


def _fought_over(snapshot: Snapshot, members: Collection[Member], reaches: Mapping[str, Reach]) -> str:
    """Return which claim for one pod at a time has more than one (kube-scheduler: VolumeRestrictions)."""
    asking = [one.guest for one in members if one.uid in reaches]
    wanted = Counter((guest.namespace, name) for guest in asking for name in reaches[guest.uid].exclusive)
    if not wanted:
        return ""
    own = {one.uid for one in members}
    others = (guest for view in snapshot.nodes.values() for guest in view.guests if guest.uid not in own)
    used = Counter((guest.namespace, name) for guest in others for name in guest.claims)
    name = next((claim[1] for claim, pods in wanted.items() if pods + used[claim] > 1), "")
    return f"PersistentVolumeClaim {name} is for one pod at a time (ReadWriteOncePod)" if name else ""
