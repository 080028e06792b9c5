"""The extender's own copy of what it reads of a snapshot, and the updates that keep it like the World's. Pure.

The extender runs in a process of its own: a plan that is made in a thread beside it would keep the interpreter from it
for tens of milliseconds, pod after pod.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from outrider.api.gangplacement import (
    GangPlacement,
    GangPlacementSpec,
    GangPlacementStatus,
    PlacementState,
    RankAssignment,
)
from outrider.api.meta import ObjectMeta
from outrider.topology.domains import Path
from outrider.workloads.resources import GPU_RESOURCES
from scheduler_plugin.cluster.nodes import NodeView, count_in_use
from scheduler_plugin.cluster.snapshot import Plan, Snapshot, plan_from
from scheduler_plugin.cluster.spares import Kept

_CHUNK: Final = 500  # nodes or plans in one update of many: some milliseconds of reading


class ToldPlan(msgspec.Struct, frozen=True, array_like=True):
    """What filter needs of a placement. ``ranks`` are pod UID and node, in the plan's order."""

    planned: bool
    ranks: list[tuple[str, str]]
    spares: list[str]


class Update(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nodes by name and plans by job UID that changed, None for those that are gone; all spares, if they did."""

    nodes: dict[str, NodeView | None] = {}
    plans: dict[str, ToldPlan | None] = {}
    kept: dict[str, Kept] | None = None
    gpu_resources: tuple[str, ...] | None = None


class Sender:
    """Tells changes of a World's snapshot, each once."""

    def __init__(self) -> None:
        self._plans: Mapping[str, Plan] = {}
        self._kept: Mapping[str, Kept] = {}

    def everything(self, snapshot: Snapshot) -> list[Update]:
        """Return the updates that make an empty mirror like the snapshot."""
        self._plans, self._kept = {}, {}
        return [Update(gpu_resources=snapshot.gpu_resources), *self.updates(snapshot, snapshot.nodes)]

    def updates(self, snapshot: Snapshot, names: Collection[str]) -> list[Update]:
        """Return what is new since the last call, in parts that are read within milliseconds each."""
        rest = list(names)
        return [self.changes(snapshot, rest[start : start + _CHUNK]) for start in range(0, max(len(rest), 1), _CHUNK)]

    def changes(self, snapshot: Snapshot, names: Iterable[str]) -> Update:
        """Return what is new since the last call: these nodes, and whatever else is."""
        nodes = {name: _lean(snapshot.nodes.get(name)) for name in names}
        plans = {} if snapshot.plans is self._plans else _changed(self._plans, snapshot.plans)
        kept = None if snapshot.kept == self._kept else dict(snapshot.kept)
        self._plans, self._kept = snapshot.plans, snapshot.kept
        return Update(nodes, plans, kept)


def _lean(view: NodeView | None) -> NodeView | None:
    """Leave out what only planners read."""
    return None if view is None else msgspec.structs.replace(view, labels={}, guests=(), uses={})


def _changed(old: Mapping[str, Plan], new: Mapping[str, Plan]) -> dict[str, ToldPlan | None]:
    changed: dict[str, ToldPlan | None] = dict.fromkeys(old.keys() - new.keys())
    return changed | {uid: _told(plan) for uid, plan in new.items() if old.get(uid) is not plan}


def _told(plan: Plan) -> ToldPlan:
    status = plan.placement.status
    return ToldPlan(plan.planned, [(rank.pod_uid, rank.node) for rank in status.ranks], status.spares)


def _plan(job_uid: str, told: ToldPlan) -> Plan:
    ranks = [RankAssignment(rank=0, pod="", pod_uid=pod_uid, node=node) for pod_uid, node in told.ranks]
    state = PlacementState.PLANNED if told.planned else PlacementState.WAITING
    spec = GangPlacementSpec(job_kind="", job_name="", job_uid=job_uid, size=len(ranks))
    status = GangPlacementStatus(state=state, ranks=ranks, spares=told.spares)
    return plan_from(GangPlacement(metadata=ObjectMeta(), spec=spec, status=status))


class Mirror:
    """Nodes and plans as last told."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeView] = {}
        self._plans: dict[str, Plan] = {}
        self._leaf_gpus: Counter[Path] = Counter()
        self._kept: dict[str, Kept] = {}
        self._gpu_resources: tuple[str, ...] = GPU_RESOURCES
        self.snapshot = Snapshot()

    def apply(self, update: Update) -> None:
        """Take an update; ``snapshot`` then shows it."""
        for name, view in update.nodes.items():
            count_in_use(self._leaf_gpus, self._nodes.pop(name, None), -1)
            count_in_use(self._leaf_gpus, view, 1)
            if view is not None:
                self._nodes[name] = view
        for uid, told in update.plans.items():
            self._plans.pop(uid, None)
            if told is not None:
                self._plans[uid] = _plan(uid, told)
        self._kept = self._kept if update.kept is None else update.kept
        self._gpu_resources = update.gpu_resources or self._gpu_resources
        self.snapshot = Snapshot(
            nodes=self._nodes,
            plans=self._plans,
            leaf_gpus=self._leaf_gpus,
            gpu_resources=self._gpu_resources,
            kept=self._kept,
        )
