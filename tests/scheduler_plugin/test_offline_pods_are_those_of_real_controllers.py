"""The pods that `outrider plan` makes of a manifest against those that the kind's own controller made of it."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from outrider.api.core import Owner, Pod
from outrider.workloads import gang_of, gated, gpus_of, rank_of, role_of, segment_of, size_of, stage_of
from scheduler_plugin.cluster.world import World
from scheduler_plugin.offline.pods import hypothesis
from tests.scheduler_plugin.builders import NOW, RULES
from tests.workloads.recorded import FILES, Recorded, name_of, read

WRAPPED = ("TrainJob",)  # needs its runtime, which is no owner of the pods


def manifest(case: Recorded) -> str:
    """The object that a user submitted; of a TrainJob the JobSet that Trainer made."""
    top = next(one for one in case.owners if one["kind"] not in WRAPPED)
    meta = {key: top["metadata"].get(key) or {} for key in ("labels", "annotations")}
    return yaml.safe_dump(
        {**top, "metadata": {**meta, "name": top["metadata"]["name"], "namespace": "training"}, "status": None}
    )


def facts(pods: list[Pod], owners: list[Owner]) -> Counter[tuple[object, ...]]:
    """What the planner makes of the pods with GPUs: for each its gang, size, rank, role, stage, segment and GPUs.

    Some controllers add init containers of their own with a little CPU, and submitters without GPUs: left out here.
    """
    world = World(RULES)
    for owner in owners:
        world.on_job(None, owner)
    for pod in pods:
        world.on_pod(None, pod)
    found: Counter[tuple[object, ...]] = Counter()
    for pod in pods:
        gang = gang_of(pod)
        assert gang is not None, pod.metadata.name
        state = world.gang(gang.uid)
        owner = state.owner if state else None
        size = size_of(owner, state.pods if state else [pod])
        place = (rank_of(pod, owner), role_of(pod), stage_of(pod, owner), segment_of(pod, owner))
        if gpus := gpus_of(pod):
            found[(gang.kind, gang.part, size.pods, size.min, *place, gpus)] += 1
    return found


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_manifest_makes_the_gang_that_the_real_controller_made(path: Path) -> None:
    case = read(name_of(path))
    wanted = hypothesis(manifest(case), "training", NOW)
    assert facts(list(wanted.pods), list(wanted.owners)) == facts(case.typed(), case.known())


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_members_with_gpus_are_gated_and_no_others(path: Path) -> None:
    wanted = hypothesis(manifest(read(name_of(path))), "training", NOW)
    alone = name_of(path) == "job/plain"  # a Job that is not Indexed
    assert all(gated(pod) == (gpus_of(pod) > 0 and not alone) for pod in wanted.pods)
