"""Whatever stands on pods and owners: no crash, no gang smaller than its pods without a word, ranks that fit."""

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
from tests.workloads.recorded import FILES, KINDS, name_of, read

KEYS = sorted(
    {key for path in FILES for pod in read(name_of(path)).typed() for key in pod.metadata.labels}
    | {key for path in FILES for pod in read(name_of(path)).typed() for key in pod.metadata.annotations}
    | {
        "outrider.dev/gang",
        "outrider.dev/gang-size",
        "outrider.dev/gang-min",
        "outrider.dev/gang-rank",
        "outrider.dev/required-level",
        "outrider.dev/segment-pods",
        "outrider.dev/segment-level",
        "kueue.x-k8s.io/pod-group-name",
        "kueue.x-k8s.io/pod-group-total-count",
        "pod-group-name",
        "scheduling.k8s.io/group-name",
        "scheduling.x-k8s.io/pod-group",
        "volcano.sh/task-spec",
        "volcano.sh/task-index",
    }
)
texts = st.one_of(
    st.integers(-2, 9).map(str), st.sampled_from(["worker", "launcher", "leader", "a"]), st.text(max_size=9)
)
maps = st.dictionaries(st.sampled_from(KEYS), texts, max_size=8)
references = st.builds(
    OwnerReference,
    api_version=st.sampled_from([kind.api_version for kind in KINDS] + ["apps/v1", "", "/", "a/b/c"]),
    kind=st.sampled_from([kind.name for kind in KINDS] + ["ReplicaSet", ""]),
    name=texts,
    uid=st.sampled_from(["u", "v"]),
    controller=st.booleans(),
)
specs = st.builds(
    PodSpec,
    containers=st.lists(
        st.builds(
            Container,
            resources=st.builds(
                ResourceRequirements, limits=st.dictionaries(st.sampled_from([GPU, "cpu"]), texts, max_size=2)
            ),
        ),
        max_size=2,
    ),
    priority=st.one_of(st.none(), st.integers(-9, 9)),
    scheduler_name=st.sampled_from(["", "outrider-scheduler"]),
    scheduling_group=st.one_of(st.none(), st.builds(SchedulingGroup, pod_group_name=st.one_of(st.none(), texts))),
)
metas = st.builds(
    ObjectMeta,
    name=st.text(max_size=9),
    namespace=st.sampled_from(["", "ml"]),
    uid=st.sampled_from(["u", "v"]),
    labels=maps,
    annotations=maps,
    owner_references=st.lists(references, max_size=2),
)
pods = st.builds(Pod, metadata=metas, spec=specs)
# Small numbers, wrong ones included: sizes add up, and a seat is made for each pod.
counts = st.integers(-3, 6)


@st.composite
def any_owner(draw: st.DrawFn) -> Owner:
    """An owner of any kind, from JSON that its struct accepts."""
    struct = draw(st.sampled_from([kind.struct for kind in KINDS]))
    template = {"spec": msgspec.to_builtins(draw(specs))}
    job = {"parallelism": draw(counts), "completions": draw(counts), "template": template}
    replica = {"replicas": draw(counts), "template": template}
    name = draw(texts)
    names = st.lists(st.sampled_from(["a", "b", "worker", name]), max_size=2)
    body = {
        **job,
        "replicas": draw(counts),
        "completionMode": draw(st.sampled_from(["Indexed", "NonIndexed", ""])),
        "podManagementPolicy": draw(st.sampled_from(["Parallel", "OrderedReady", ""])),
        "minAvailable": draw(counts),
        "minMember": draw(counts),
        "elasticPolicy": {"minReplicas": draw(counts)},
        "enableInTreeAutoscaling": draw(st.booleans()),
        "schedulingPolicy": draw(st.sampled_from([{}, {"gang": {"minCount": 3}}, {"gang": {"minCount": -1}}])),
        "startupPolicy": "LeaderReady"
        if struct.__name__ == "LeaderWorkerSet"
        else {"startupPolicyOrder": draw(st.sampled_from(["InOrder", "AnyOrder"]))},
        "leaderWorkerTemplate": {"size": draw(counts), "subGroupPolicy": {"subGroupSize": draw(counts)}},
        "headGroupSpec": {"template": template},
        "workerGroupSpecs": [
            {"groupName": name, "replicas": draw(counts), "minReplicas": draw(counts), "numOfHosts": draw(counts)}
        ],
        "tasks": [
            {"name": one, "replicas": draw(counts), "dependsOn": {"name": draw(names)}} for one in ("a", "b", name)
        ],
        "replicatedJobs": [
            {
                "name": one,
                "replicas": draw(counts),
                "template": {"spec": job},
                "dependsOn": [{"name": other, "status": draw(st.sampled_from(["Ready", "Complete", ""]))}
                              for other in draw(names)],
            }
            for one in ("a", "b", name)
        ],
        **{f"{kind}ReplicaSpecs": {name: replica, "Worker": replica} for kind in ("pytorch", "tf", "xgb", "mpi")},
    }  # fmt: skip
    meta = msgspec.to_builtins(draw(metas))
    owner: Owner = msgspec.convert({"metadata": meta, "spec": body}, struct)
    return owner


@settings(max_examples=500)
@given(st.lists(pods, min_size=1, max_size=5), st.one_of(st.none(), any_owner()))
def test_no_pod_and_no_owner_is_too_odd_to_be_read(group: list[Pod], owner: Owner | None) -> None:
    for pod in group:
        gang = gang_of(pod)
        rank, stage, segment = rank_of(pod, owner), stage_of(pod, owner), segment_of(pod, owner)
        assert rank is None or rank >= 0
        assert stage >= -1
        assert segment >= -1
        assert role_of(pod) is not None
        assert not may_be_gated(pod) or gang is not None
        assert gang is None or owner_key(gang, "ml") is not None or not gang.owned
    size = size_of(owner, group)
    there = sum(is_member(pod) and stage_of(pod, owner) >= 0 for pod in group)
    assert bool(size.pods) != bool(size.unknown)
    assert size.unknown or size.pods >= there
    assert 0 <= size.min <= size.pods
    assert isinstance(priority_of(group, owner)[0], int)
    assert isinstance(awaited(group), str)
    ask, problem = topology_ask(group, owner)
    assert ask.segment_pods >= 0
    assert problem is not None


@settings(max_examples=300)
@given(any_owner(), pods)
def test_an_owner_foretells_as_many_seats_as_its_size(owner: Owner, pod: Pod) -> None:
    gang = gang_of(pod)
    seats = seats_of(gang, owner) if gang else ()
    if seats:
        assert len(seats) == size_of(owner).pods
        assert [seat.rank for seat in seats] == list(range(len(seats)))
        assert min(seat.stage for seat in seats) >= 0
