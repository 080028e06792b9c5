from outrider.api.core import Job, JobSpec, Pod
from outrider.api.kubeflow import MPIJob, ReplicaSpec, TrainingJobSpec
from outrider.api.leaderworkerset import LeaderWorkerSet, LeaderWorkerSetSpec, LeaderWorkerTemplate
from outrider.api.meta import ObjectMeta
from outrider.api.trainingpolicy import TrainingPolicy, TrainingPolicySpec
from outrider.workloads import gang_of, size_of
from scheduler_plugin.cluster.world import World
from tests.scheduler_plugin.builders import RULES, gang_pods, make_job, make_placement, make_pod
from tests.workloads.recorded import read


def world_of(name: str, *, owners_first: bool = True) -> tuple[World, list[str]]:
    woken: list[str] = []
    world, case = World(RULES, on_gang=woken.append), read(name)
    owners = case.known()
    if owners_first:
        for owner in owners:
            world.on_job(None, owner)
    for pod in case.typed():
        world.on_pod(None, pod)
    woken.clear()
    if not owners_first:
        for owner in owners:
            world.on_job(None, owner)
    return world, woken


def uids_of(name: str) -> set[str]:
    return {gang.uid for pod in read(name).typed() if (gang := gang_of(pod))}


def test_an_owner_is_found_by_uid_or_by_name_whichever_its_pods_know() -> None:
    for name, pods in (("jobset/replicas", 4), ("mpijob/launcher-works", 4), ("leaderworkerset/created", 4)):
        for owners_first in (True, False):
            world, woken = world_of(name, owners_first=owners_first)
            for uid in uids_of(name):
                gang = world.gang(uid)
                assert gang is not None
                assert size_of(gang.owner, gang.pods).pods == pods
            if not owners_first:
                assert set(woken) == uids_of(name)


def test_a_change_of_a_leaderworkerset_wakes_all_its_groups_and_nobody_else() -> None:
    world, woken = world_of("leaderworkerset/created")
    world.on_pod(None, make_pod("other-0", job="other", rank=0))
    woken.clear()
    (owner,) = [one for one in read("leaderworkerset/created").known() if isinstance(one, LeaderWorkerSet)]
    template = LeaderWorkerTemplate(size=9)
    world.on_job(
        owner, LeaderWorkerSet(metadata=owner.metadata, spec=LeaderWorkerSetSpec(leader_worker_template=template))
    )
    assert sorted(woken) == sorted(uids_of("leaderworkerset/created"))
    assert {size_of(gang.owner).pods for uid in woken if (gang := world.gang(uid))} == {9}


def test_a_job_of_the_same_name_that_came_later_is_not_the_owner() -> None:
    world = World(RULES)
    for pod in gang_pods("train", 2):
        world.on_pod(None, pod)
    later = Job(metadata=ObjectMeta(name="train", namespace="ml", uid="later"), spec=JobSpec(parallelism=2))
    world.on_job(None, later)
    gang = world.gang("job-train")
    assert gang is not None
    assert gang.owner is None
    world.on_job(later, make_job("train", 2))
    assert (gang := world.gang("job-train")) is not None
    assert gang.owner is not None
    world.on_job(make_job("train", 2), None)
    assert (gang := world.gang("job-train")) is not None
    assert gang.owner is None


def test_launchers_that_others_place_do_not_count_as_members() -> None:
    world, _ = world_of("mpijob/at-startup")
    (uid,) = uids_of("mpijob/at-startup")
    gang = world.gang(uid)
    assert gang is not None
    assert [pod.metadata.labels["training.kubeflow.org/job-role"] for pod in gang.pods] == ["worker"] * 3


def test_a_placement_is_no_orphan_while_the_owner_it_names_exists() -> None:
    world = World(RULES)
    placement = make_placement("train", {0: "n0"})
    world.on_placement(None, placement)
    assert [orphaned for _, orphaned in world.placements()] == [True]
    world.on_job(None, make_job("train"))
    assert [orphaned for _, orphaned in world.placements()] == [False]
    world.on_job(make_job("train"), None)
    assert [orphaned for _, orphaned in world.placements()] == [True]


def test_a_gang_without_an_owner_object_needs_none() -> None:
    annotations = {"outrider.dev/gang": "a", "outrider.dev/gang-size": "2"}
    pods = [
        Pod(metadata=ObjectMeta(name=f"p-{n}", namespace="ml", uid=f"u-{n}", annotations=annotations)) for n in "ab"
    ]
    world = World(RULES)
    for pod in pods:
        world.on_pod(None, pod)
    gang = gang_of(pods[0])
    assert gang is not None
    assert (state := world.gang(gang.uid)) is not None
    assert size_of(state.owner, pods).pods == 2


def test_what_pods_of_one_gang_disagree_on_is_noted() -> None:
    world = World(RULES)
    for number, pod in enumerate(gang_pods("train", 3)):
        labels = pod.metadata.labels | {"tier": "gold" if number else "silver"}
        meta = ObjectMeta(
            **{name: getattr(pod.metadata, name) for name in pod.metadata.__struct_fields__} | {"labels": labels}
        )
        world.on_pod(None, Pod(metadata=meta, spec=pod.spec, status=pod.status))
    gold = TrainingPolicySpec(selector={"tier": "gold"}, spares=3)
    world.on_policy(None, TrainingPolicy(metadata=ObjectMeta(name="gold"), spec=gold))
    gang = world.gang("job-train")
    assert gang is not None
    assert gang.policy.spares == 3
    assert gang.notes == ("its pods come under different TrainingPolicies; that of 2 of 3 holds for all",)


def test_an_owner_without_pods_wakes_nobody() -> None:
    woken: list[str] = []
    world = World(RULES, on_gang=woken.append)
    world.on_job(None, make_job("train"))
    roles = {"Worker": ReplicaSpec(replicas=2)}
    world.on_job(None, MPIJob(metadata=ObjectMeta(name="mpi"), spec=TrainingJobSpec(mpi_replica_specs=roles)))
    assert woken == []
