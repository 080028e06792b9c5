"""Whatever stands on pods and owners: no crash, no gang smaller than its pods without a word, ranks that fit."""

import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.api.core import Container, Owner, Pod, PodSpec, ResourceRequirements, SchedulingGroup
from outrider.api.meta import ObjectMeta, OwnerReference
from outrider.workloads import (
    GPU,
    awaited,
    gang_of,
    is_member,
    may_be_gated,
    owner_key,
    priority_of,
    rank_of,
    role_of,
    seats_of,
    segment_of,
    size_of,
    stage_of,
    topology_ask,
)
from outrider.workloads.kinds import CONTROLLERS, FAMILIES, controller_of, family_of
from tests.workloads.recorded import KINDS

KEYS = [
    "outrider.dev/gang",
    "outrider.dev/gang-size",
    "outrider.dev/gang-min",
    "outrider.dev/gang-rank",
    "outrider.dev/required-level",
    "outrider.dev/segment-pods",
    "outrider.dev/segment-level",
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "jobset.sigs.k8s.io/jobset-name",
    "jobset.sigs.k8s.io/jobset-uid",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    "leaderworkerset.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/size",
    "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "training.kubeflow.org/operator-name",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
    "training.kubeflow.org/job-name",
    "training.kubeflow.org/job-role",
    "ray.io/group",
    "ray.io/worker-group-replica-index",
    "ray.io/replica-host-index",
    "volcano.sh/task-spec",
    "volcano.sh/task-index",
    "kueue.x-k8s.io/pod-group-name",
    "kueue.x-k8s.io/pod-group-total-count",
    "kueue.x-k8s.io/pod-group-pod-index",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io/min-available",
    "pod-group-name",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
]
TEXTS = [
    *map(str, range(-2, 7)),
    "",
    "a",
    "b",
    "worker",
    "launcher",
    "leader",
    "mpi-operator",
    "٣",
    "²",
    "9" * 99,
    "a/b",
    "\0",
]


class Odd:
    """Draws pods and owners from a seed: as much as hypothesis would, in a hundredth of the time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - test data

    def one(self, *choices: Any) -> Any:
        """Return one of the choices."""
        return self._random.choice(choices)

    def text(self) -> str:
        """Return a text that a label may hold, or may not."""
        return str(self.one(*TEXTS))

    def count(self) -> int:
        """Return a number of pods; sizes add up and a seat is made for each, so it is small."""
        return self._random.randint(-3, 6)

    def map(self) -> dict[str, str]:
        """Return labels or annotations."""
        return {key: self.text() for key in self._random.sample(KEYS, self._random.randint(0, 4))}

    def spec(self) -> PodSpec:
        """Return what a pod asks for."""
        limits = {self.one(GPU, "cpu"): self.text() for _ in range(self._random.randint(0, 2))}
        group = self.one(None, None, None, SchedulingGroup(pod_group_name=self.one(None, self.text())))
        return PodSpec(
            containers=[Container(resources=ResourceRequirements(limits=limits))],
            priority=self.one(None, self.count()),
            scheduler_name=self.one("", "outrider-scheduler"),
            scheduling_group=group,
        )

    def meta(self, owners: list[OwnerReference]) -> ObjectMeta:
        """Return metadata."""
        return ObjectMeta(
            name=self.text(),
            namespace=self.one("", "ml"),
            uid=self.one("u", "v"),
            labels=self.map(),
            annotations=self.map(),
            owner_references=owners,
        )

    def references(self) -> list[OwnerReference]:
        """Return owners of a pod that has any."""
        kinds = [(kind.api_version, kind.name) for kind in KINDS]
        api_version, kind = self.one(*kinds, ("apps/v1", "ReplicaSet"), ("", ""), ("a/b/c", "Job"))
        controller = self.one(True, False)
        one = OwnerReference(api_version=api_version, kind=kind, name=self.text(), uid="u", controller=controller)
        return [one] * self._random.randint(0, 2)

    def pod(self) -> Pod:
        """Return a pod."""
        return Pod(metadata=self.meta(self.references()), spec=self.spec())

    def owner(self) -> Owner:
        """Return an owner of any kind, from JSON that its struct accepts."""
        struct = self.one(*KINDS).struct
        startup = (
            "LeaderReady" if struct.__name__ == "LeaderWorkerSet" else {"startupPolicyOrder": self.one("InOrder", "")}
        )
        template = {"spec": msgspec.to_builtins(self.spec())}
        names = ["a", "b", self.text()]
        body = {
            **self._job(template),
            "replicas": self.count(),
            "podManagementPolicy": self.one("Parallel", "OrderedReady", ""),
            "minAvailable": self.count(),
            "minMember": self.count(),
            "elasticPolicy": {"minReplicas": self.count()},
            "runPolicy": self.one({}, {"schedulingPolicy": {"minAvailable": self.count()}}),
            "launcherCreationPolicy": self.one("", "WaitForWorkersReady"),
            "enableInTreeAutoscaling": self.one(None, True, False),
            "schedulingPolicy": self.one({}, {"gang": {"minCount": self.count()}}),
            "startupPolicy": startup,
            "leaderWorkerTemplate": {"size": self.count(), "subGroupPolicy": {"subGroupSize": self.count()}},
            "headGroupSpec": {"template": template},
            "workerGroupSpecs": [self._group(name) for name in names],
            "tasks": [
                {"name": name, "replicas": self.count(), "dependsOn": {"name": [self.one(*names)]}} for name in names
            ],
            "replicatedJobs": [self._replicated(name, names, template) for name in names],
        }
        for kind in ("pytorch", "tf", "xgb", "paddle", "jax", "mpi"):
            roles = {name: {"replicas": self.count(), "template": template} for name in (*names, "Worker", "Launcher")}
            body[f"{kind}ReplicaSpecs"] = roles
        meta = msgspec.to_builtins(self.meta([]))
        owner: Owner = msgspec.convert({"metadata": meta, "spec": body}, struct)
        return owner

    def gang(self) -> tuple[list[Pod], Owner | None]:
        """Return pods that have much in common, as those of one gang do, and the owner that may be theirs."""
        base, owner = self.pod(), self.one(None, self.owner())
        kind = next((kind for kind in KINDS if kind.struct is type(owner)), None)
        references = base.metadata.owner_references
        if kind is not None:
            references = [
                OwnerReference(api_version=kind.api_version, kind=kind.name, name="o", uid="u", controller=True)
            ]
        return [self._like(base, references) for _ in range(self._random.randint(1, 5))], owner

    def _like(self, base: Pod, references: list[OwnerReference]) -> Pod:
        meta = self.meta(references)
        same = msgspec.structs.replace(
            meta,
            namespace=base.metadata.namespace,
            labels=base.metadata.labels | self.one({}, meta.labels),
            annotations=base.metadata.annotations | self.one({}, meta.annotations),
        )
        return Pod(metadata=same, spec=self.one(base.spec, self.spec()))

    def _job(self, template: dict[str, Any]) -> dict[str, Any]:
        mode = self.one("Indexed", "NonIndexed", "")
        parallelism, completions = self.one(None, self.count()), self.one(None, self.count())
        return {
            "parallelism": parallelism,
            "completions": completions,
            "completionMode": mode,
            "template": template,
        }

    def _group(self, name: str) -> dict[str, Any]:
        bounds = {"minReplicas": self.count(), "maxReplicas": self.one(None, self.count())}
        return bounds | {"groupName": name, "replicas": self.one(None, self.count()), "numOfHosts": self.count()}

    def _replicated(self, name: str, names: list[str], template: dict[str, Any]) -> dict[str, Any]:
        needs = [{"name": self.one(*names), "status": self.one("Ready", "Complete", "")}]
        job = {"metadata": {"annotations": self.map()}, "spec": self._job(template)}
        return {"name": name, "replicas": self.count(), "template": job, "dependsOn": self.one([], needs)}


seeds = st.integers(0, 2**64).map(Odd)


@settings(max_examples=2000)
@given(seeds)
def test_no_pod_and_no_owner_is_too_odd_to_be_read(odd: Odd) -> None:
    group, owner = odd.gang()
    for pod in group:
        gang = gang_of(pod)
        rank = rank_of(pod, owner)
        assert rank is None or rank >= 0
        assert stage_of(pod, owner) >= -1
        assert segment_of(pod, owner) >= -1
        assert isinstance(role_of(pod), str)
        assert not may_be_gated(pod) or gang is not None
        assert gang is None or owner_key(gang, "ml") is not None or not gang.owned
    assert isinstance(priority_of(group, owner)[0], int)
    assert isinstance(awaited(group), str)
    ask, problem = topology_ask(group, owner)
    assert ask.segment_pods >= 0
    assert isinstance(problem, str)


@settings(max_examples=2000)
@given(seeds)
def test_no_gang_is_smaller_than_its_pods_and_more_than_asked_for_is_said(odd: Odd) -> None:
    group, owner = odd.gang()
    size, asked = size_of(owner, group), size_of(owner)
    there = sum(is_member(pod) and stage_of(pod, owner) >= 0 for pod in group)
    assert bool(size.pods) != bool(size.unknown)
    assert size.unknown or size.pods >= there
    assert 0 <= size.min <= size.pods
    assert asked.unknown or size.pods in (asked.pods, there)
    grown = not size.unknown and not asked.unknown and size.pods > asked.pods
    assert not grown or size.note or size.min


@settings(max_examples=2000)
@given(seeds)
def test_an_owner_foretells_as_many_seats_as_its_size(odd: Odd) -> None:
    (pod, *_), owner = odd.gang()
    gang = gang_of(pod)
    seats = seats_of(gang, owner) if gang else ()
    if seats:
        assert len(seats) == size_of(owner).pods
        assert [seat.rank for seat in seats] == list(range(len(seats)))
        assert min(seat.stage for seat in seats) >= 0


@settings(max_examples=2000)
@given(seeds)
def test_the_short_way_to_a_pods_family_leads_where_the_long_one_does(odd: Odd) -> None:
    pod = odd.pod()
    known = [(family, gang) for family in FAMILIES if (gang := family.gang(pod)) is not None]
    owner = pod.metadata.controller()
    never = owner is not None and (owner.api_version, owner.kind) == ("apps/v1", "ReplicaSet")
    assert family_of(pod) == (known[0] if known and not never else None)
    assert controller_of(pod) == next((family for family, _ in known if family in CONTROLLERS), None)


@given(st.text(), st.text(), st.text(), st.sampled_from(KEYS))
def test_any_text_may_stand_anywhere(key: str, name: str, value: str, known: str) -> None:
    both = {key: value, known: value}
    pod = Pod(metadata=ObjectMeta(name=name, namespace=name, labels=both, annotations=both))
    gang = gang_of(pod)
    assert gang is None or len(gang.uid) > 0
    assert size_of(None, [pod]).pods >= 0
    assert rank_of(pod) is None or value.isdigit()
    topology_ask([pod])
