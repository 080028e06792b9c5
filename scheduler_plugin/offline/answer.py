"""Where a manifest's pods would land on a saved cluster, by the planner's own decisions. Pure."""

from collections.abc import Iterator
from typing import Final

import msgspec

from outrider.api.core import Pod
from outrider.api.gangplacement import GangPlacement, GangPlacementSpec, GangPlacementStatus, RankAssignment
from outrider.api.landing import Landing, LandingGang
from outrider.api.meta import ObjectMeta
from outrider.topology import oddities
from outrider.words import plural
from outrider.workloads import GangRef, gang_of
from scheduler_plugin.cluster.members import GangState, member
from scheduler_plugin.cluster.world import World
from scheduler_plugin.offline.pods import Hypothesis, ours
from scheduler_plugin.offline.saved import Saved, world_of
from scheduler_plugin.placing.explain import refusal
from scheduler_plugin.placing.gang import Gang
from scheduler_plugin.placing.room import Room
from scheduler_plugin.planner.advance import Advance, advance
from scheduler_plugin.rules import Rules

_ODDITIES: Final = 3


def answer(saved: Saved, wanted: Hypothesis) -> Landing:
    """Return where the pods would land. Raises BadSnapshot, BadQuantity."""
    rules = saved.settings.rules()
    world = world_of(saved, rules)
    for owner in wanted.owners:
        world.on_job(None, owner)
    for pod in wanted.pods:
        world.on_pod(None, pod)
    world.publish()
    landed = [*_gangs(world, wanted, rules, saved.now), *_alone(world, wanted, saved.now)]
    notes = [*saved.notes, *wanted.notes, *_odd_labels(world, rules)]
    return Landing(taken=saved.taken, fits=all(one.fits for one in landed), gangs=landed, notes=notes)


def _odd_labels(world: World, rules: Rules) -> list[str]:
    """Return what is odd about the topology labels of GPU nodes: placement is only as good as they are."""
    labels = {name: view.labels for name, view in world.snapshot.nodes.items() if view.gpus}
    return [f"topology labels: {words}" for words in oddities(labels, rules.levels)[:_ODDITIES]]


def _gangs(world: World, wanted: Hypothesis, rules: Rules, now: float) -> Iterator[LandingGang]:
    """Plan one gang after the other, each with the nodes of those before it taken."""
    uids = [known.uid for pod in wanted.pods if ours(pod) and (known := gang_of(pod))]
    for uid in dict.fromkeys(uids):
        gang = world.gang(uid)
        if gang is None:
            continue
        step = advance(gang, world.publish(), rules, now)
        if step.status is not None:
            world.on_placement(None, _placement(gang, step.status, step.size))
        yield _landing(gang, step)


def _placement(gang: GangState, status: GangPlacementStatus, size: int) -> GangPlacement:
    meta = ObjectMeta(name=gang.job.uid, namespace=gang.namespace, uid=f"placement/{gang.job.uid}")
    spec = GangPlacementSpec(job_kind=gang.job.kind, job_name=gang.job.name, job_uid=gang.job.uid, size=max(size, 1))
    return GangPlacement(metadata=meta, spec=spec, status=status)


def _landing(gang: GangState, step: Advance) -> LandingGang:
    status = step.status or GangPlacementStatus()
    return LandingGang(
        name=_name(gang.job, gang.namespace),
        pods=len(gang.pods),
        fits=step.outcome == "planned" and not step.waiting,
        message=step.message,
        domain=status.domain,
        ranks=status.ranks,
        spares=status.spares,
        rejected=status.rejected,
        why=status.why,
    )


def _name(gang: GangRef, namespace: str) -> str:
    return f"{gang.kind} {namespace}/{gang.name}" + (f", group {gang.part}" if gang.part else "")


def _alone(world: World, wanted: Hypothesis, now: float) -> Iterator[LandingGang]:
    """Say of each pod on its own which node the extender's score is for; kube-scheduler has the last word."""
    for pod in wanted.pods:
        if gang_of(pod) is None and ours(pod):
            landing = _single(world, pod, now)
            for rank in landing.ranks:
                bound = msgspec.structs.replace(pod.spec, node_name=rank.node)
                world.on_pod(None, msgspec.structs.replace(pod, spec=bound))
            yield landing


def _single(world: World, pod: Pod, now: float) -> LandingGang:
    snapshot, one = world.publish(), member(pod, 0)
    gang = Gang(pod.metadata.uid, (one,))
    views = list(Room(snapshot, gang.job_uid, gang.members, frozenset(), now).fitting(one))
    if not views:
        refused = refusal(gang, snapshot, now)
        return LandingGang(name=f"Pod {pod.key}", pods=1, fits=False, message=refused.message, why=refused.why)
    best = max(views, key=lambda view: (view.preference, -len(view.name), view.name))
    seat = RankAssignment(
        rank=0, pod=pod.metadata.name, pod_uid=pod.metadata.uid, node=best.name, gpus=one.gpus // 1000
    )
    takes = "takes" if len(views) == 1 else "take"
    message = f"{plural(len(views), 'node')} {takes} it now, {best.name} first; kube-scheduler chooses among them"
    return LandingGang(name=f"Pod {pod.key}", pods=1, fits=True, message=message, ranks=[seat])
