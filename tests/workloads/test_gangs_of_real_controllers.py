"""What is read off the pods that real controllers made of real jobs."""

import re

import pytest

from outrider.workloads import is_member, may_be_gated, rank_of, role_of, seats_of, segment_of, size_of, stage_of
from tests.workloads.recorded import FILES, name_of, read

# case -> kind, gangs, size of each, pods that may start with less
GANGS = {
    "job/indexed": ("Job", 1, 4, 0),
    "jaxjob/workers": ("JAXJob", 1, 3, 0),
    "jobset/replicas": ("JobSet", 1, 4, 0),
    "jobset/depends-on": ("JobSet", 1, 4, 0),
    "jobset/in-order": ("JobSet", 1, 4, 0),
    "jobset/exclusive": ("JobSet", 1, 4, 0),
    "leaderworkerset/created": ("LeaderWorkerSet", 2, 4, 0),
    "leaderworkerset/exclusive": ("LeaderWorkerSet", 2, 4, 0),
    "leaderworkerset/leader-ready": ("LeaderWorkerSet", 2, 4, 0),
    "leaderworkerset/leader-template": ("LeaderWorkerSet", 2, 3, 0),
    "mpijob/at-startup": ("MPIJob", 1, 3, 0),
    "mpijob/launcher-works": ("MPIJob", 1, 4, 0),
    "mpijob/workers-ready": ("MPIJob", 1, 3, 0),
    "pytorchjob/elastic": ("PyTorchJob", 1, 3, 2),
    "pytorchjob/master": ("PyTorchJob", 1, 4, 0),
    "raycluster/multi-host": ("RayCluster", 1, 4, 0),
    "raycluster/workers": ("RayCluster", 1, 3, 0),
    "statefulset/parallel": ("StatefulSet", 1, 3, 0),
    "tfjob/roles": ("TFJob", 1, 3, 0),
    "trainjob/deepspeed": ("JobSet", 1, 3, 0),
    "trainjob/torch": ("JobSet", 1, 3, 0),
}
# No gangs, or one of several controllers: these have tests of their own.
OTHERS = {"job/plain", "statefulset/ordered", "rayjob/workers"}
EACH = pytest.mark.parametrize("name", [name_of(path) for path in FILES])


@pytest.mark.parametrize("name", GANGS)
def test_a_gang_has_its_kind_size_and_least(name: str) -> None:
    kind, count, pods, least = GANGS[name]
    gangs = read(name).gangs()
    assert [gang.kind for gang, _, _ in gangs] == [kind] * count
    for _, owner, members in gangs:
        size = size_of(owner, members)
        assert (size.pods, size.min, size.unknown, size.note) == (pods, least, "", "")


def test_every_recorded_job_is_tested() -> None:
    assert {name_of(path) for path in FILES} == GANGS.keys() | OTHERS


def test_a_rayjob_runs_as_the_gang_of_its_cluster_and_its_submitter_is_none_of_it() -> None:
    sizes = {gang.kind: size_of(owner, pods).pods for gang, owner, pods in read("rayjob/workers").gangs()}
    assert sizes == {"RayCluster": 2, "Job": 1}


@EACH
def test_ranks_of_a_numbered_gang_are_all_there_once(name: str) -> None:
    for gang, owner, pods in read(name).gangs():
        ranks = [rank_of(pod, owner) for pod in pods if is_member(pod)]
        if gang.kind == "RayCluster" or name == "job/plain":
            assert set(ranks) == {None}  # Ray and a Job that is not Indexed number no pods
        elif ranks:
            assert sorted(rank for rank in ranks if rank is not None) == list(range(len(ranks)))


@EACH
def test_every_pod_sits_on_the_seat_that_its_owner_foretells(name: str) -> None:
    for gang, owner, pods in read(name).gangs():
        seats = {seat.rank: seat for seat in seats_of(gang, owner)}
        assert seats or size_of(owner, [pod for pod in pods if is_member(pod)]).unknown
        for pod in pods:
            rank = rank_of(pod, owner)
            if rank in seats and is_member(pod):
                said = (role_of(pod), stage_of(pod, owner), segment_of(pod, owner))
                assert said == (seats[rank].role, seats[rank].stage, seats[rank].segment)


@EACH
def test_a_staged_gang_is_known_to_be_one(name: str) -> None:
    """The pods that came while none was scheduled are those of the lowest stage, where the gang's size is known."""
    case = read(name)
    for _, owner, pods in case.gangs():
        members = [pod for pod in pods if is_member(pod)]
        if size_of(owner, members).unknown:
            continue
        first = {stem(one) for one in case.first}
        came = {pod.metadata.name for pod in members if stem(pod.metadata.name) in first}
        assert came == {pod.metadata.name for pod in members if stage_of(pod, owner) == 0}


def stem(name: str) -> str:
    """Return a name without the parts that are made up anew in each run (apimachinery's rand.SafeEncodeString)."""
    return re.sub(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?=-|$)", "", name)


def test_child_jobs_of_an_exclusive_jobset_are_segments() -> None:
    ((_, owner, pods),) = read("jobset/exclusive").gangs()
    segments = {(pod.metadata.labels["jobset.sigs.k8s.io/job-index"], segment_of(pod, owner)) for pod in pods}
    assert segments == {("0", 0), ("1", 1)}


def test_a_launcher_without_gpus_is_no_member_and_one_with_gpus_is_rank_0() -> None:
    for name, member in (("mpijob/at-startup", False), ("mpijob/launcher-works", True)):
        ((_, owner, pods),) = read(name).gangs()
        (launcher,) = [pod for pod in pods if role_of(pod) == "launcher"]
        assert is_member(launcher) is member
        assert rank_of(launcher, owner) == (0 if member else None)


def test_launcher_and_workers_of_an_mpijob_are_one_gang_though_they_have_different_owners() -> None:
    ((_, _, pods),) = read("mpijob/launcher-works").gangs()
    assert len({owner.uid for pod in pods if (owner := pod.metadata.controller())}) == 2


@pytest.mark.parametrize(
    ("name", "words"), [("job/plain", "not Indexed"), ("statefulset/ordered", "podManagementPolicy")]
)
def test_pods_that_need_not_run_together_are_single_and_it_is_said(name: str, words: str) -> None:
    ((gang, owner, pods),) = read(name).gangs()
    assert words in size_of(owner, pods).unknown
    assert seats_of(gang, owner) == ()


@EACH
def test_only_members_of_gangs_may_be_gated(name: str) -> None:
    assert {may_be_gated(pod) for pod in read(name).typed() if is_member(pod)} <= {name != "job/plain"}
