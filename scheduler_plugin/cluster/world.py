"""The mutable side of snapshots: takes objects as informers deliver them, keeps per-node sums, makes snapshots.

Nothing here is known only to this process: every number follows from objects that the API server holds. What the
planner writes goes in through the same doors, so that the next plan sees it before the watch repeats it; a write that
fails is taken back.
"""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from outrider.api.core import Node, Owner, Pod
from outrider.api.gangplacement import GangPlacement, PlacementState
from outrider.api.gpunode import GPUNode
from outrider.api.meta import ObjectMeta
from outrider.api.remediation import Remediation
from outrider.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from outrider.api.trainingpolicy import TrainingPolicy
from outrider.topology import Domain
from outrider.topology.domains import Path
from outrider.workloads import (
    GangRef,
    gang_of,
    gated,
)
from scheduler_plugin.cluster.blackholes import Blackholes, failure_of
from scheduler_plugin.cluster.fabric import Atlas
from scheduler_plugin.cluster.gangs import Gangs
from scheduler_plugin.cluster.members import GangState, gone, managed
from scheduler_plugin.cluster.nodes import Amounts, Body, Company, NodeView, body_of, count_in_use, renewed, view
from scheduler_plugin.cluster.plans import Plans
from scheduler_plugin.cluster.pods import Pods, nodes_of
from scheduler_plugin.cluster.sightings import Sightings
from scheduler_plugin.cluster.snapshot import Plan, Snapshot, plan_from
from scheduler_plugin.cluster.spares import Keeper, Kept, Spares
from scheduler_plugin.cluster.suspects import suspected, suspicion
from scheduler_plugin.cluster.turns import Turn, turn
from scheduler_plugin.cluster.volumes import Stock
from scheduler_plugin.rules import Rules

Change = tuple[NodeView | None, NodeView | None]


class World:
    """Objects and the sums over them. ``snapshot`` is always whole; ``refresh`` brings it up to date.

    ``snapshot`` is for reading at once: the next refresh changes it where it lies, since copying all nodes for each
    change of one would cost more than the change. What ``publish`` returns stays as it is. ``wake`` is called when a
    refresh becomes due, ``on_gang`` with the UID of a job whose pods, placement or owner changed, ``on_nodes`` with the
    views that a refresh changed, ``on_views`` with the names of all nodes that a refresh looked at, even where only
    plans changed.
    """

    def __init__(
        self,
        rules: Rules,
        *,
        wake: Callable[[], None] = lambda: None,
        on_gang: Callable[[str], None] = lambda _: None,
        on_nodes: Callable[[list[Change]], None] = lambda _: None,
        on_views: Callable[[Collection[str]], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.snapshot = Snapshot(levels=rules.levels, gpu_resources=rules.gpu_resources)
        self._rules = rules
        self._wake, self._on_gang, self._on_nodes, self._on_views = wake, on_gang, on_nodes, on_views
        self._bodies: dict[str, Body] = {}
        self._health: dict[str, GPUNode] = {}
        self._pods, self._gangs, self._plans = Pods(), Gangs(), Plans()
        self._placements: defaultdict[str, dict[str, GangPlacement]] = defaultdict(dict)  # job UID -> own UID
        self._claims: dict[str, list[tuple[GangPlacement | None, GangPlacement | None]]] = {}
        self._views: dict[str, NodeView] = {}
        self._leaf_gpus: Counter[Path] = Counter()
        self._atlas = Atlas()
        self._dirty: set[str] = set()
        self._stale = False
        self._clock = clock
        self._sightings = Sightings(rules.stale_seconds)
        self._suspects: dict[Domain, dict[str, Remediation]] = {}
        self._blackholes, self._stock = Blackholes(), Stock()
        self._spares = Spares(rules.levels, rules.domain_spares, rules.borrowers_below)
        self._published = False  # whether somebody has the snapshot, so that it must not change any more

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """Take a change of a node."""
        if new is not None:
            self._bodies[new.metadata.name] = body_of(new, self._rules)
        elif old is not None:
            self._bodies.pop(old.metadata.name, None)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._blackholes.forget_node(old.metadata.name)
        self._touch(_name(old, new))

    def on_gpunode(self, old: GPUNode | None, new: GPUNode | None) -> None:
        """Take a change of a node's health."""
        if new is not None:
            self._health[new.metadata.name] = new
            self._sightings.note(new.metadata.name, new.status.observed_at or "", self._clock())
        elif old is not None:
            self._health.pop(old.metadata.name, None)
            self._sightings.forget(old.metadata.name)
        self._touch(_name(old, new))

    def clock_was_set(self, seconds: float) -> None:
        """Take that this machine's clock was set forward by that much, or back: no agent has been silent for that."""
        self._touch(*self._sightings.shift(seconds))

    def on_job(self, old: Owner | None, new: Owner | None) -> None:
        """Take a change of a job, or of any other object that gangs come from."""
        for uid in self._gangs.keep_owner(old, new):
            self._on_gang(uid)

    def on_policy(self, old: TrainingPolicy | None, new: TrainingPolicy | None) -> None:
        """Take a change of a policy. It holds for the plans that come after it."""
        self._gangs.keep_policy(old, new)

    def on_remediation(self, old: Remediation | None, new: Remediation | None) -> None:
        """Take a change of an episode; those about domains make all of a domain's nodes suspect."""
        before, after = suspected(old), suspected(new)
        if old is not None and before is not None:
            known = self._suspects.get(before, {})
            known.pop(old.metadata.name, None)
            if not known:
                self._suspects.pop(before, None)
        if new is not None and after is not None:
            self._suspects.setdefault(after, {})[new.metadata.name] = new
        if before != after:
            self._touch(*(name for name, body in self._bodies.items() if {before, after} & set(body.domains)))

    def on_volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        """Take a change of a volume."""
        self._stock.keep_volume(old, new)
        self._replan()

    def on_volume_claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        """Take a change of a claim on a volume."""
        self._stock.keep_claim(old, new)
        self._replan()

    def on_storage_class(self, old: StorageClass | None, new: StorageClass | None) -> None:
        """Take a change of a class of volumes."""
        self._stock.keep_class(old, new)
        self._replan()

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Take a change of a pod, of whatever scheduler and owner."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._forget_pod(old.metadata.uid)
            self._tell(old)
        if new is None:
            return
        known = self._pods.get(new.metadata.uid)
        if _news(known.metadata if known else None, new.metadata):
            self._forget_pod(new.metadata.uid)
            self._keep_pod(new)
            self._blame(new)
            self._tell(new)

    def _blame(self, pod: Pod) -> None:
        """Count a failure against the pod's node, where it is one."""
        gang = gang_of(pod)
        alone = gang is not None and self._gangs.works_elsewhere(gang.uid, pod)
        failure = failure_of(pod, self._clock(), alone=alone, gang=gang.uid if gang else "")
        if failure is not None:
            self._touch(*self._blackholes.note(pod.metadata.uid, failure))

    def _tell(self, pod: Pod) -> None:
        gang = gang_of(pod)
        if gang is not None:
            self._on_gang(gang.uid)

    def on_placement(self, old: GangPlacement | None, new: GangPlacement | None) -> None:
        """Take a change of a placement. Its ranks hold their nodes until their pods are bound or gone."""
        uid = new.spec.job_uid if new is not None else old.spec.job_uid if old is not None else ""
        if uid in self._claims:
            self._claims[uid].append((old, new))
            return
        if old is not None and (new is None or _other(old, new)):
            self._placements[old.spec.job_uid].pop(old.metadata.uid, None)
            self._choose(old.spec.job_uid)
        if new is None:
            return
        known = self._placements[uid].get(new.metadata.uid)
        if _news(known.metadata if known else None, new.metadata):
            self._placements[uid][new.metadata.uid] = new
            self._choose(uid)

    def _choose(self, job_uid: str) -> None:
        """Hold what a job's placement says. Of several, since people copied one, the oldest holds.

        One in another namespace than the job's pods says nothing of them.
        """
        if job_uid in self._claims:
            return
        spaces = {pod.metadata.namespace for pod in self._gangs.pods(job_uid)}
        known = self._placements.get(job_uid, {}).values()
        beside = [one for one in known if not spaces or one.metadata.namespace in spaces]
        best = min(beside, key=lambda one: _age(one.metadata), default=None)
        plan = self._plans.get(job_uid)
        if best is not None and plan is not None and plan.placement is best:
            return
        self._release(job_uid)
        if not known:
            self._placements.pop(job_uid, None)
        if best is not None:
            self._hold(plan_from(best))
        self._on_gang(job_uid)

    def claim(self, wanted: GangPlacement) -> None:
        """Hold the nodes of a plan from now on, while it is being written, until ``settle``.

        What the watch says of the placement meanwhile is kept for later: a half-written one would let the nodes go.
        """
        uid = wanted.spec.job_uid
        self._claims[uid] = []
        self._release(uid)
        self._hold(plan_from(wanted))

    def settle(self, job_uid: str, stored: GangPlacement | None) -> None:
        """End a claim: the placement is now as stored, or, where writing failed, as the watch says."""
        self._release(job_uid)
        for old, new in self._claims.pop(job_uid):
            self.on_placement(old, new)
        if stored is not None:
            self.on_placement(None, stored)
        self._choose(job_uid)

    def gang(self, job_uid: str) -> GangState | None:
        """Return what is known about a job's gang, None while it has no pods."""
        plan = self._plans.get(job_uid)
        return self._gangs.state(job_uid, plan.placement if plan else None)

    def placements(self) -> list[tuple[GangPlacement, bool]]:
        """Return every placement, and whether it is orphaned: its job is not known and has no pods."""
        return [(plan.placement, self._gangs.orphaned(uid, plan.placement)) for uid, plan in self._plans.items()]

    def free_gpus(self) -> int:
        """Return the GPUs in use by no pod, in thousandths, whether held or not."""
        return sum(max(view.free_gpus, 0) for view in self._views.values())

    def forsaken(self) -> list[GangPlacement]:
        """Return the placements that still keep room for a gang which has no pods any more: a suspended job's."""
        plans = self._plans.items()
        return [plan.placement for uid, plan in plans if plan.placement.status.reservations and uid not in self._gangs]

    def unsettled(self, now: float) -> list[str]:
        """Return the UIDs of jobs that the planner has not seen placed, in the order of their turn at ``now``."""
        waiting = {uid: self._turn(uid, pods.values(), now) for uid, pods in self._gangs.items() if self._open(uid)}
        return sorted(waiting, key=waiting.__getitem__)

    def turn(self, uid: str, now: float) -> Turn:
        """Return a gang's turn, told by one of its pods: they are made together and share their priority."""
        return self._turn(uid, itertools.islice(self._gangs.pods(uid), 1), now)

    def _turn(self, uid: str, pods: Iterable[Pod], now: float) -> Turn:
        return turn(uid, self._plans.status(uid), pods, self._rules.patience_seconds, now)

    def _open(self, uid: str) -> bool:
        plan = self._plans.get(uid)
        if plan is not None and plan.placement.status.state is PlacementState.PLANNED:
            return True
        return any(managed(pod) and not pod.spec.node_name and not gone(pod) for pod in self._gangs.pods(uid))

    def gangs(self) -> Iterator[GangState]:
        """Yield all that is known about every gang."""
        return (gang for uid in list(self._gangs) if (gang := self.gang(uid)))

    def gated(self) -> list[Pod]:
        """Return the pods that wait for the planner to lift their gate."""
        return [pod for pod in self._pods if gated(pod) and managed(pod) and not gone(pod)]

    def publish(self) -> Snapshot:
        """Return a snapshot that holds every change taken so far, and never changes."""
        self.refresh()
        self._published = True
        return self.snapshot

    def refresh(self) -> None:
        """Bring ``snapshot`` up to date."""
        if not self._dirty and not self._stale:
            return
        if self._published:
            self._views, self._leaf_gpus, self._published = dict(self._views), Counter(self._leaf_gpus), False
        plans = dict(self._plans.items()) if self._stale else self.snapshot.plans
        self._stale = False
        names = frozenset(self._dirty)
        changes = self._changes()
        self.snapshot = Snapshot(
            self._views,
            plans,
            self._leaf_gpus,
            self._rules.levels,
            self._rules.gpu_resources,
            self._atlas,
            self._stock.storage(),
            self._kept_nodes(plans),
        )
        self._on_views(names)
        if changes:
            self._on_nodes(changes)

    def _kept_nodes(self, plans: Mapping[str, Plan]) -> dict[str, Kept]:
        keepers = (
            Keeper(uid, plan.placement.status.priority or 0, tuple(plan.placement.status.spares))
            for uid, plan in plans.items()
            if plan.planned and plan.placement.status.spares_kept
        )
        # Where two gangs keep one node, the one of higher priority has the last word, whoever came first.
        return self._spares.kept(self._views, sorted(keepers, key=lambda one: (one.priority, one.gang)))

    def _touch(self, *names: str) -> None:
        due = not self._dirty and not self._stale
        self._dirty.update(name for name in names if name)
        if due and self._dirty:
            self._wake()

    def _keep_pod(self, pod: Pod) -> None:
        self._pods.keep(pod)
        self._touch(*nodes_of(pod))
        gang = gang_of(pod)
        if gang is not None:
            self._touch_plan(gang, pod, seats=self._gangs.keep_pod(gang, pod))

    def _forget_pod(self, uid: str) -> None:
        pod = self._pods.forget(uid)
        if pod is None:
            return
        self._touch(*nodes_of(pod))
        gang = gang_of(pod)
        if gang is not None:
            self._touch_plan(gang, pod, seats=self._gangs.forget_pod(gang, pod))

    def _touch_plan(self, gang: GangRef, pod: Pod, *, seats: bool) -> None:
        """Look again at the node planned for a pod, and at all ``seats`` where its gang comes or goes with it."""
        self._touch(self._plans.node_of(gang.uid, pod.metadata.uid))
        if seats:
            self._touch(*self._plans.seats(gang.uid))
            self._choose(gang.uid)

    def _hold(self, plan: Plan) -> None:
        self._touch(*self._plans.hold(plan))
        self._replan()

    def _release(self, uid: str) -> None:
        if self._plans.get(uid) is not None:
            self._touch(*self._plans.release(uid))
            self._replan()

    def _replan(self) -> None:
        if not self._stale and not self._dirty:
            self._wake()
        self._stale = True

    def _changes(self) -> list[Change]:
        """Make the views of all nodes that something happened to; return those that are news to planners."""
        changes: list[Change] = []
        for name in self._dirty:
            old, new = self._views.get(name), self._view(name)
            count_in_use(self._leaf_gpus, old, -1)
            count_in_use(self._leaf_gpus, new, 1)
            self._spares.changed(old, new)
            if old is None or new is None or old.place != new.place:
                self._atlas = Atlas()
            if new is not None:
                self._views[name] = new
            elif old is not None:
                del self._views[name]
            if new != old and not (old and new and renewed(old, new, self._rules)):
                changes.append((old, new))
        self._dirty.clear()
        return changes

    def _view(self, name: str) -> NodeView | None:
        body = self._bodies.get(name)
        if body is None:
            return None
        planned = [uid for uid, job_uid in self._plans.ranks(name) if self._is_of(uid, job_uid)]
        company = Company(
            guests=self._pods.guests(name, planned),
            suspect=suspicion(body.domains, self._suspects) if self._suspects else "",
            closure=self._blackholes.closure(name),
            rejected=self._blackholes.rejections(name),
            waits=self._plans.waiting(name),
        )
        uses, holds = self._pods.uses(name), self._holds(name, planned)
        return view(body, self._health.get(name), uses, holds, self._rules, company, self._sightings.at(name))

    def _is_of(self, pod_uid: str, job_uid: str) -> bool:
        """Return whether a planned pod is one of its plan's gang: of others' pods a plan says nothing."""
        pod = self._pods.get(pod_uid)
        return pod is not None and self._pods.guest(pod_uid).gang == job_uid

    def _holds(self, name: str, planned: Sequence[str]) -> dict[str, Amounts]:
        holds: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for pod_uid in self._pods.coming(name, planned):
            holds[self._pods.guest(pod_uid).gang or pod_uid].update(self._pods.asked(pod_uid))
        for job_uid, amounts in self._plans.reserved(name).items():
            if job_uid in self._gangs:  # once its last pod is gone, nobody is waited for
                holds[job_uid].update(amounts)
        return dict(holds)


def _name(old: Node | GPUNode | None, new: Node | GPUNode | None) -> str:
    present = new or old
    return present.metadata.name if present else ""


def _other(old: GangPlacement, new: GangPlacement) -> bool:
    """Return whether a placement took the place of another one, or of what it was itself: another job's."""
    return old.metadata.uid != new.metadata.uid or old.spec.job_uid != new.spec.job_uid


def _age(meta: ObjectMeta) -> tuple[str, str]:
    return meta.creation_timestamp or "", meta.uid


def _news(known: ObjectMeta | None, new: ObjectMeta | None) -> bool:
    """Return whether a change is news: the watch repeats, later, what a write's own answer has already told.

    Resource versions of one object are numbers that grow (KEP-5504); where a server's are none, all is news.
    """
    if known is None or new is None or known.uid != new.uid:
        return True
    versions = (known.resource_version, new.resource_version)
    return not all(version.isdigit() for version in versions) or int(versions[0]) <= int(versions[1])
