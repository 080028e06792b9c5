"""What decisions read: nodes and plans at one moment."""

from collections.abc import Mapping

import msgspec

from outrider.api.gangplacement import GangPlacement, PlacementState, RankAssignment
from outrider.topology import Levels
from outrider.topology.domains import Path
from outrider.workloads.resources import GPU_RESOURCES
from scheduler_plugin.cluster.fabric import Atlas
from scheduler_plugin.cluster.nodes import NodeView
from scheduler_plugin.cluster.spares import Kept
from scheduler_plugin.cluster.volumes import Storage


class Plan(msgspec.Struct, frozen=True):
    """A gang's placement, ready for look-ups by pod UID."""

    placement: GangPlacement
    ranks: Mapping[str, RankAssignment]

    @property
    def planned(self) -> bool:
        """False while the gang still waits."""
        return self.placement.status.state is not PlacementState.WAITING


class Snapshot(msgspec.Struct, frozen=True):
    """The cluster. ``plans`` by job UID; ``leaf_gpus`` are thousandths in use under each leaf's path;
    ``kept`` are the nodes kept free as spares.

    One from ``World.publish`` never changes, so threads may share it.
    """

    nodes: Mapping[str, NodeView] = {}
    plans: Mapping[str, Plan] = {}
    leaf_gpus: Mapping[Path, int] = {}
    levels: Levels = ()
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    atlas: Atlas = msgspec.field(default_factory=Atlas)
    storage: Storage = Storage()
    kept: Mapping[str, Kept] = {}

    def plan_of(self, job_uid: str) -> Plan | None:
        """Return the job's plan, None while it has none that holds."""
        plan = self.plans.get(job_uid)
        return plan if plan is not None and plan.planned else None

    def kept_from(self, priority: int) -> frozenset[str]:
        """Return the names of the spare nodes that a pod of no gang and of this priority may not borrow."""
        return frozenset(name for name, kept in self.kept.items() if priority >= kept.borrowers_below)

    def ranked(self) -> frozenset[str]:
        """Return the UIDs of the pods that are ranks of some gang's plan."""
        return frozenset().union(*(plan.ranks for plan in self.plans.values()))


def plan_from(placement: GangPlacement) -> Plan:
    """Return a placement as a plan."""
    return Plan(placement, {rank.pod_uid: rank for rank in placement.status.ranks})
