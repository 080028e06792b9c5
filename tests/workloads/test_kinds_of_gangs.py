"""Gangs by what stands on pods and owners, in the cases that no recorded job shows."""

import pytest

from outrider.api.core import (
    Container,
    Job,
    JobSpec,
    NamedReference,
    Owner,
    Pod,
    PodSpec,
    PodTemplate,
    ResourceRequirements,
    SchedulingGroup,
    StatefulSet,
    StatefulSetSpec,
)
from outrider.api.jobset import DependsOn, JobSet, JobSetSpec, JobTemplate, ReplicatedJob
from outrider.api.kubeflow import (
    ElasticPolicy,
    JAXJob,
    MPIJob,
    PaddleJob,
    ReplicaSpec,
    RunPolicy,
    SchedulingPolicy,
    TrainingJobSpec,
    XGBoostJob,
)
from outrider.api.leaderworkerset import LeaderWorkerSet, LeaderWorkerSetSpec, LeaderWorkerTemplate, SubGroupPolicy
from outrider.api.meta import ObjectMeta, OwnerReference
from outrider.api.names import GANG_GATE, SCHEDULER_NAME
from outrider.api.podgroups import (
    CoschedulingPodGroup,
    GangPolicy,
    KaiPodGroup,
    MemberGroupSpec,
    PodGroup,
    PodGroupPolicy,
    PodGroupSpec,
    VolcanoPodGroup,
)
from outrider.api.raycluster import HeadGroupSpec, RayCluster, RayClusterSpec, WorkerGroupSpec
from outrider.api.volcano import Task, TaskDependency, VolcanoJob, VolcanoJobSpec
from outrider.workloads import (
    BEFORE,
    GPU,
    GangRef,
    awaited,
    doubts,
    gang_of,
    is_member,
    key_of_owner,
    may_be_gated,
    owner_key,
    owner_reference,
    owns,
    priority_of,
    rank_of,
    role_of,
    seats_of,
    segment_of,
    size_of,
    stage_of,
)

GPUS = PodSpec(containers=[Container(resources=ResourceRequirements(limits={GPU: "8"}))])
NO_GPUS = PodSpec(containers=[Container(resources=ResourceRequirements(limits={"cpu": "1"}))])
WITH = PodTemplate(spec=GPUS)
WITHOUT = PodTemplate(spec=NO_GPUS)


def pod(
    name: str = "p-0",
    *,
    owner: tuple[str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    spec: PodSpec = GPUS,
) -> Pod:
    owners = (
        [OwnerReference(api_version=owner[0], kind=owner[1], name="own", uid="u", controller=True)] if owner else []
    )
    meta = ObjectMeta(
        name=name, namespace="ml", labels=labels or {}, annotations=annotations or {}, owner_references=owners
    )
    return Pod(metadata=meta, spec=spec)


def gang(one: Pod) -> GangRef:
    found = gang_of(one)
    assert found is not None
    return found


def own(name: str = "a", *, size: str | None = "3", **more: str) -> Pod:
    annotations = {"outrider.dev/gang": name} | ({"outrider.dev/gang-size": size} if size is not None else {})
    return pod(annotations=annotations | {f"outrider.dev/{key.replace('_', '-')}": text for key, text in more.items()})


# Our own annotations


def test_annotations_make_a_gang_of_plain_pods() -> None:
    pods = [own(gang_rank=str(rank)) for rank in range(3)]
    assert len({gang_of(one) for one in pods}) == 1
    assert (gang(pods[0]).kind, gang(pods[0]).owned) == ("Gang", False)
    assert size_of(None, pods).pods == 3
    assert [rank_of(one) for one in pods] == [0, 1, 2]
    assert may_be_gated(pods[0])


def test_gangs_of_one_name_in_two_namespaces_are_two() -> None:
    other = Pod(metadata=ObjectMeta(namespace="other", annotations={"outrider.dev/gang": "a"}))
    assert gang(other).uid != gang(own("a")).uid
    assert gang(own("a")).uid == gang(own("a", size="9")).uid


def test_an_elastic_gang_says_with_how_many_pods_it_may_start() -> None:
    assert size_of(None, [own(size="8", gang_min="4")]).least == 4
    assert size_of(None, [own(size="8", gang_min="9")]).least == 8
    assert size_of(None, [own(size="8")]).least == 8


@pytest.mark.parametrize("size", ["", "0", "-1", "x", "3.0", "٣", "9" * 30, None])
def test_a_gang_without_a_size_is_single_pods_and_it_is_said(size: str | None) -> None:
    one = own(size=size)
    said = size_of(None, [one])
    assert said.pods == 0
    assert "outrider.dev/gang-size" in said.unknown
    assert not may_be_gated(one)


def test_whoever_creates_a_pod_is_told_what_of_it_makes_no_sense() -> None:
    assert doubts(own(size="many")) == [
        "outrider.dev/gang-size: 'many' is no number of pods: it is placed as a single pod"
    ]
    assert "segment-level" in doubts(own(segment_pods="4"))[0]
    assert doubts(own()) == doubts(pod()) == doubts(pod(owner=("batch/v1", "Job"))) == []


def test_of_different_sizes_the_largest_holds_and_it_is_said() -> None:
    size = size_of(None, [own(size="3"), own(size="3"), own(size="4")])
    assert size.pods == 4
    assert size.note == "its pods disagree on its size (2 say 3, 1 say 4); the largest holds"


def test_pods_beyond_the_size_count_and_it_is_said() -> None:
    size = size_of(None, [own(size="2")] * 3)
    assert size.pods == 3
    assert size.note == "3 pods are there, though 2 were asked for: all of them count"


def test_peoples_word_makes_a_gang_across_jobs_and_of_workers_without_index() -> None:
    jobs = [pod(owner=("batch/v1", "Job"), annotations={"outrider.dev/gang": "both"}) for _ in range(2)]
    assert {gang(one).name for one in jobs} == {"both"}
    plain = pod(owner=("batch/v1", "Job"), annotations={"outrider.dev/gang-size": "4"})
    assert (gang(plain).kind, size_of(Job(spec=JobSpec(parallelism=4)), [plain]).pods) == ("Job", 4)
    assert may_be_gated(plain)
    assert not may_be_gated(pod(owner=("batch/v1", "Job")))


@pytest.mark.parametrize("owner", [("apps/v1", "ReplicaSet"), ("apps/v1", "DaemonSet")])
def test_pods_of_a_deployment_are_never_a_gang(owner: tuple[str, str]) -> None:
    annotations = {"outrider.dev/gang": "a", "outrider.dev/gang-size": "2", "pod-group-name": "g"}
    assert gang_of(pod(owner=owner, annotations=annotations)) is None
    assert gang_of(pod(owner=("example.com/v1", "Thing"))) is None


# Groups


def test_a_podgroup_of_kubernetes_says_how_many_pods_are_enough() -> None:
    spec = PodSpec(scheduling_group=SchedulingGroup(pod_group_name="g"), containers=GPUS.containers)
    pods = [pod(owner=("batch/v1", "Job"), spec=spec) for _ in range(4)]
    group = PodGroup(spec=PodGroupSpec(scheduling_policy=PodGroupPolicy(gang=GangPolicy(min_count=3)), priority=7))
    assert (gang(pods[0]).kind, gang(pods[0]).group) == ("PodGroup", "scheduling.k8s.io")
    size = size_of(group, pods)
    assert (size.pods, size.least, size.note) == (4, 3, "")
    assert size_of(group, pods[:1]).pods == 3
    assert priority_of(pods, group) == (7, "")
    assert "basic" in size_of(PodGroup(), pods).unknown
    assert may_be_gated(pods[0])
    assert gang_of(pod(spec=PodSpec(scheduling_group=SchedulingGroup()))) is None


def test_a_pod_group_of_kueue_says_its_size() -> None:
    labels = {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/pod-group-pod-index": "1"}
    one = pod(labels=labels, annotations={"kueue.x-k8s.io/pod-group-total-count": "2"})
    assert (gang(one).name, size_of(None, [one]).pods, rank_of(one)) == ("g", 2, 1)
    assert may_be_gated(one)
    assert not may_be_gated(pod(labels=labels))
    assert "total-count" in size_of(None, [pod(labels=labels)]).unknown


@pytest.mark.parametrize(
    ("known", "group", "owner"),
    [
        ({"scheduling.x-k8s.io/pod-group": "g"}, "scheduling.x-k8s.io", CoschedulingPodGroup),
        ({"pod-group.scheduling.sigs.k8s.io": "g"}, "scheduling.x-k8s.io", CoschedulingPodGroup),
        ({"pod-group.scheduling.sigs.k8s.io/name": "g"}, "scheduling.x-k8s.io", CoschedulingPodGroup),
        ({"pod-group-name": "g"}, "scheduling.run.ai", KaiPodGroup),
        ({"scheduling.k8s.io/group-name": "g"}, "scheduling.volcano.sh", VolcanoPodGroup),
        ({"scheduling.volcano.sh/group-name": "g"}, "scheduling.volcano.sh", VolcanoPodGroup),
    ],
)
def test_pod_groups_of_other_schedulers_are_gangs(known: dict[str, str], group: str, owner: type[Owner]) -> None:
    for one in (pod(labels=known), pod(annotations=known)):
        assert (gang(one).name, gang(one).group, gang(one).kind) == ("g", group, "PodGroup")
        assert owner_key(gang(one), "ml") == (owner, "ml", "g")
        there = owner(metadata=ObjectMeta(name="g", namespace="ml", uid="u"), spec=MemberGroupSpec(min_member=3))  # type: ignore[call-arg]  # every owner of the table has a spec
        assert size_of(there, [one]).pods == 3
        assert size_of(owner(), [one]).unknown


def test_an_old_coscheduling_label_says_how_many_pods_are_enough() -> None:
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}
    assert size_of(None, [pod(labels=labels)]).pods == 3


# Kubernetes' own


def test_a_statefulset_counts_from_its_pods_names_where_they_have_no_index_label() -> None:
    one = pod("set-2", owner=("apps/v1", "StatefulSet"))
    assert (rank_of(one), may_be_gated(one)) == (2, True)
    parallel = StatefulSet(spec=StatefulSetSpec(replicas=4, pod_management_policy="Parallel"))
    assert size_of(parallel, [one]).pods == 4
    assert size_of(StatefulSet(), [one]).pods == 1


def test_a_gang_of_more_pods_than_a_placement_holds_is_single_pods_and_it_is_said() -> None:
    endless = StatefulSet(spec=StatefulSetSpec(replicas=2**31, pod_management_policy="Parallel"))
    one = pod("set-0", owner=("apps/v1", "StatefulSet"))
    assert "no gang may have more than 16384" in size_of(endless, [one]).unknown
    assert seats_of(gang(one), endless) == ()
    assert "16384" in size_of(None, [own(size="99999")]).unknown


def test_a_job_in_waves_keeps_the_rank_of_its_index() -> None:
    waves = Job(spec=JobSpec(parallelism=2, completions=10, completion_mode="Indexed"))
    one = pod(owner=("batch/v1", "Job"), labels={"batch.kubernetes.io/job-completion-index": "7"})
    assert (rank_of(one, waves), size_of(waves, [one]).pods) == (7, 2)


# JobSet


def jobset(*jobs: ReplicatedJob) -> JobSet:
    return JobSet(metadata=ObjectMeta(name="js", namespace="ml", uid="u"), spec=JobSetSpec(replicated_jobs=list(jobs)))


def job(
    name: str, pods: int, *after: DependsOn, replicas: int = 1, template: PodTemplate = WITH, exclusive: str = ""
) -> ReplicatedJob:
    meta = ObjectMeta(annotations={"alpha.jobset.sigs.k8s.io/exclusive-topology": exclusive} if exclusive else {})
    spec = JobSpec(parallelism=pods, completions=pods, completion_mode="Indexed", template=template)
    return ReplicatedJob(
        name=name, replicas=replicas, depends_on=list(after), template=JobTemplate(metadata=meta, spec=spec)
    )


def jobset_pod(role: str, index: int, *, job_index: int = 0) -> Pod:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "js",
        "jobset.sigs.k8s.io/replicatedjob-name": role,
        "jobset.sigs.k8s.io/job-index": str(job_index),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return pod(labels=labels, owner=("batch/v1", "Job"))


def test_a_jobset_without_its_uid_on_pods_goes_by_name() -> None:
    one = jobset_pod("workers", 0)
    assert (gang(one).kind, gang(one).owned, gang(one).name) == ("JobSet", False, "js")
    owner = jobset(job("workers", 2))
    assert owner_key(gang(one), "ml") == key_of_owner(owner)
    assert owns(owner, gang(one))
    reference = owner_reference(gang(one), owner)
    assert reference is not None
    assert reference.uid == "u"
    assert owner_reference(gang(one), None) is None


def test_initializers_end_before_the_gang_and_are_not_of_its_size() -> None:
    complete = DependsOn(name="dataset-initializer", status="Complete")
    owner = jobset(job("dataset-initializer", 1), job("node", 4, complete))
    pods = [jobset_pod("dataset-initializer", 0), *(jobset_pod("node", index) for index in range(4))]
    size = size_of(owner, pods)
    assert (size.pods, size.note) == (4, "")
    assert [stage_of(one, owner) for one in pods] == [BEFORE, 0, 0, 0, 0]
    assert [rank_of(one, owner) for one in pods] == [None, 0, 1, 2, 3]
    assert [seat.rank for seat in seats_of(gang(pods[0]), owner)] == [0, 1, 2, 3]


def test_jobs_that_wait_for_others_to_be_ready_come_a_stage_later() -> None:
    owner = jobset(
        job("a", 2, exclusive="rack"),
        job("b", 2, DependsOn(name="a", status="Ready")),
        job("c", 1, DependsOn(name="b", status="Ready"), DependsOn(name="nobody", status="Ready")),
    )
    stages = {seat.rank: seat.stage for seat in seats_of(gang(jobset_pod("a", 0)), owner)}
    assert stages == {0: 0, 1: 1, 2: 2, 3: 2, 4: 3}


def test_roles_without_gpus_are_not_of_a_jobsets_gang() -> None:
    owner = jobset(job("driver", 1, template=WITHOUT), job("workers", 2, replicas=2))
    pods = [jobset_pod("workers", index, job_index=number) for number in (0, 1) for index in (0, 1)]
    assert size_of(owner, pods).pods == 4
    assert [rank_of(one, owner) for one in pods] == [0, 1, 2, 3]
    only = jobset(job("driver", 3, template=WITHOUT))
    assert size_of(only).pods == 3


# LeaderWorkerSet


@pytest.mark.parametrize(
    ("size", "kind", "segments"),
    [
        (5, "LeaderWorker", [0, 0, 0, 1, 1]),
        (4, "LeaderWorker", [0, 0, 1, 1]),
        (5, "LeaderExcluded", [-1, 0, 0, 1, 1]),
    ],
)
def test_subgroups_of_a_leaderworkerset_are_segments(size: int, kind: str, segments: list[int]) -> None:
    policy = SubGroupPolicy(sub_group_policy_type=kind, sub_group_size=2)
    template = LeaderWorkerTemplate(size=size, worker_template=WITH, sub_group_policy=policy)
    owner = LeaderWorkerSet(spec=LeaderWorkerSetSpec(leader_worker_template=template))
    labels = {"leaderworkerset.sigs.k8s.io/name": "own", "leaderworkerset.sigs.k8s.io/group-index": "0"}
    names = ["own-0", *(f"own-0-{index}" for index in range(1, size))]
    pods = [
        pod(name, labels=labels | ({} if index else {"leaderworkerset.sigs.k8s.io/worker-index": "0"}))
        for index, name in enumerate(names)
    ]
    assert [segment_of(one, owner) for one in pods] == segments
    assert [seat.segment for seat in seats_of(gang(pods[0]), owner)] == segments
    assert [role_of(one) for one in pods] == ["leader"] + ["worker"] * (size - 1)


def test_a_leader_is_of_its_group_before_the_projects_webhook_has_labelled_it() -> None:
    labels = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/worker-index": "0"}
    leader = pod("serve-3", labels=labels)
    worker = pod("serve-3-1", labels={"leaderworkerset.sigs.k8s.io/name": "serve"})
    labelled = {"leaderworkerset.sigs.k8s.io/group-index": "3"}
    assert gang(leader) == gang(worker) == gang(pod("serve-3", labels=labels | labelled))
    assert str(gang(leader)) == "LeaderWorkerSet serve, group 3"
    assert (rank_of(leader), rank_of(worker)) == (0, 1)


# Kubeflow


def replicas(count: int | None, template: PodTemplate = WITH) -> ReplicaSpec:
    return ReplicaSpec(replicas=count, template=template)


MASTER_AND_WORKERS = {"Master": replicas(1), "Worker": replicas(2)}
LAUNCHER_AND_WORKERS = {"Launcher": replicas(1, WITHOUT), "Worker": replicas(3)}


@pytest.mark.parametrize(
    ("kind", "owner"),
    [
        ("XGBoostJob", XGBoostJob(spec=TrainingJobSpec(xgb_replica_specs=MASTER_AND_WORKERS))),
        ("PaddleJob", PaddleJob(spec=TrainingJobSpec(paddle_replica_specs=MASTER_AND_WORKERS))),
        ("JAXJob", JAXJob(spec=TrainingJobSpec(jax_replica_specs={"Worker": replicas(3)}))),
        ("MPIJob", MPIJob(spec=TrainingJobSpec(mpi_replica_specs=LAUNCHER_AND_WORKERS))),
    ],
)
def test_every_kind_of_training_operator_is_a_gang(kind: str, owner: Owner) -> None:
    one = pod(
        owner=("kubeflow.org/v1", kind),
        labels={"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "1"},
    )
    assert gang(one) == GangRef("kubeflow.org/v1", kind, "own", "u")
    assert size_of(owner, [one]).pods == 3
    assert rank_of(one, owner) == (2 if kind in ("XGBoostJob", "PaddleJob") else 1)


def test_elastic_bounds_and_the_users_own_minimum_tell_with_how_many_pods_a_job_may_start() -> None:
    roles = {"Master": replicas(1), "Worker": replicas(7)}
    elastic = TrainingJobSpec(pytorch_replica_specs=roles, elastic_policy=ElasticPolicy(min_replicas=3))
    assert size_of(PaddleJob(spec=elastic)).least == 4
    policy = RunPolicy(scheduling_policy=SchedulingPolicy(min_available=6))
    assert size_of(PaddleJob(spec=TrainingJobSpec(paddle_replica_specs=roles, run_policy=policy))).least == 6
    launched = {"Launcher": replicas(1, WITHOUT), "Worker": replicas(4)}
    policy = RunPolicy(scheduling_policy=SchedulingPolicy(min_available=3))
    assert size_of(MPIJob(spec=TrainingJobSpec(mpi_replica_specs=launched, run_policy=policy))).least == 2


def test_a_launcher_that_waits_for_its_workers_comes_a_stage_later() -> None:
    roles = {"Launcher": replicas(1), "Worker": replicas(2)}
    spec = TrainingJobSpec(mpi_replica_specs=roles, launcher_creation_policy="WaitForWorkersReady")
    labels = {"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "mpi"}
    launcher = pod(labels=labels | {"training.kubeflow.org/job-role": "launcher"}, owner=("batch/v1", "Job"))
    owner = MPIJob(spec=spec)
    assert (stage_of(launcher, owner), rank_of(launcher, owner), gang(launcher).kind) == (1, 0, "MPIJob")
    assert [seat.stage for seat in seats_of(gang(launcher), owner)] == [1, 0, 0]


# Ray


@pytest.mark.parametrize(("autoscaling", "pods", "least"), [(None, 10, 10), (False, 10, 10), (True, 10, 4)])
def test_workers_of_ray_stay_within_their_bounds(autoscaling: bool | None, pods: int, least: int) -> None:
    groups = [
        WorkerGroupSpec(group_name="a", replicas=3, min_replicas=2, max_replicas=9, num_of_hosts=2, template=WITH),
        WorkerGroupSpec(group_name="b", replicas=9, min_replicas=0, max_replicas=4, template=WITH),
        WorkerGroupSpec(group_name="c", replicas=5, suspend=True, template=WITH),
    ]
    head = HeadGroupSpec(template=WITHOUT)
    spec = RayClusterSpec(enable_in_tree_autoscaling=autoscaling, head_group_spec=head, worker_group_specs=groups)
    size = size_of(RayCluster(spec=spec))
    assert (size.pods, size.least) == (pods, least)


def test_a_head_with_gpus_is_rank_0_and_hosts_of_a_replica_follow_each_other() -> None:
    groups = [WorkerGroupSpec(group_name="a", replicas=2, num_of_hosts=2, template=WITH)]
    owner = RayCluster(spec=RayClusterSpec(head_group_spec=HeadGroupSpec(template=WITH), worker_group_specs=groups))
    head = pod(owner=("ray.io/v1", "RayCluster"), labels={"ray.io/group": "headgroup"})
    labels = {
        "ray.io/group": "a",
        "ray.io/worker-group-replica-index": "1",
        "ray.io/replica-host-index": "0",
    }
    assert rank_of(head, owner) == 0
    assert rank_of(pod(owner=("ray.io/v1", "RayCluster"), labels=labels), owner) == 3


# Volcano


def volcano(*tasks: Task, least: int | None = None) -> VolcanoJob:
    return VolcanoJob(spec=VolcanoJobSpec(min_available=least, tasks=list(tasks)))


def volcano_pod(task: str, index: int) -> Pod:
    known = {"volcano.sh/task-spec": task, "volcano.sh/task-index": str(index)}
    return pod(owner=("batch.volcano.sh/v1alpha1", "Job"), annotations=known)


def test_tasks_of_a_volcano_job_come_in_the_order_of_their_dependencies() -> None:
    after = TaskDependency(name=["master"])
    owner = volcano(
        Task(name="worker", replicas=3, template=WITH, depends_on=after),
        Task(name="master", replicas=1, template=WITH),
        least=3,
    )
    pods = [volcano_pod("master", 0), volcano_pod("worker", 2)]
    assert [(rank_of(one, owner), stage_of(one, owner)) for one in pods] == [(3, 0), (2, 1)]
    size = size_of(owner, pods)
    assert (size.pods, size.least) == (4, 3)
    assert gang(pods[0]).group == "batch.volcano.sh"


def test_tasks_that_wait_for_each_other_are_still_read() -> None:
    owner = volcano(
        Task(name="a", depends_on=TaskDependency(name=["b"])),
        Task(name="b", depends_on=TaskDependency(name=["a", "a", "x"])),
        Task(name="a"),
    )
    assert size_of(owner).pods == 2


# Membership, priority, other gates


def test_pods_for_our_scheduler_or_with_devices_are_members_without_gpus() -> None:
    assert is_member(pod(spec=PodSpec(scheduler_name=SCHEDULER_NAME)))
    assert is_member(pod(spec=PodSpec(resource_claims=[NamedReference(name="gpu")])))
    assert is_member(pod(spec=PodSpec(scheduling_gates=[NamedReference(name=GANG_GATE)])))
    assert is_member(pod(labels={"outrider.dev/job-uid": "u"}, spec=NO_GPUS))
    assert not is_member(pod(spec=NO_GPUS))
    odd = PodSpec(containers=[Container(resources=ResourceRequirements(limits={GPU: "many"}))])
    assert is_member(pod(spec=odd))


def test_of_different_priorities_the_highest_holds_and_it_is_said() -> None:
    high = PodSpec(priority=9, containers=GPUS.containers)
    assert priority_of([pod(), pod()]) == (0, "")
    assert priority_of([pod(spec=high), pod()]) == (
        9,
        "its pods have priorities from 0 to 9; the highest holds for all",
    )
    assert priority_of([]) == (0, "")


def test_a_gang_waits_for_whoever_else_holds_its_pods() -> None:
    held = pod(spec=PodSpec(scheduling_gates=[NamedReference(name="kueue.x-k8s.io/admission")]))
    ours = pod(spec=PodSpec(scheduling_gates=[NamedReference(name=GANG_GATE)]))
    other = pod(spec=PodSpec(scheduling_gates=[NamedReference(name="example.com/quota")]))
    assert awaited([ours]) == ""
    assert awaited([ours, held]) == "Kueue has not admitted 1 of 2 pods (scheduling gate kueue.x-k8s.io/admission)"
    assert "another controller still holds 1 of 1 pods (scheduling gate example.com/quota)" in awaited([other])
