import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.api.core import Pod
from outrider.api.gpunode import Verdict
from outrider.api.landing import Landing
from outrider.api.times import rfc3339
from outrider.kube.kinds import GANGPLACEMENTS, GPUNODES, JOBS, NODES, PODS
from outrider.workloads import gang_of
from scheduler_plugin.cluster.world import World
from scheduler_plugin.offline.answer import answer
from scheduler_plugin.offline.documents import BadManifest
from scheduler_plugin.offline.pods import Hypothesis, hypothesis
from scheduler_plugin.offline.saved import VERSION, BadSnapshot, Saved, decode, encode, feeds, key, slim
from scheduler_plugin.planner.advance import advance
from tests.scheduler_plugin.builders import (
    NOW,
    RULES,
    gang_pods,
    make_gpunode,
    make_job,
    make_node,
    make_placement,
    make_pod,
    make_world,
)

GPU = "nvidia.com/gpu"


def saved(**objects: list[Any]) -> Saved:
    kinds = {"nodes": NODES, "pods": PODS, "gpunodes": GPUNODES, "placements": GANGPLACEMENTS, "jobs": JOBS}
    held = {key(kinds[name]): slim(listed) for name, listed in objects.items()}
    return Saved(version=VERSION, taken=rfc3339(NOW), objects=held)


def template(gpus: object = 8, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "env": [{"name": "TOKEN", "value": "s3cret"}]}
    resources = {"resources": {"limits": {GPU: gpus}}} if gpus else {}
    return {"spec": {"containers": [{**container, **resources}], **spec}}


def job(size: int = 3, name: str = "new", **pod: Any) -> dict[str, Any]:
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": template(**pod)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def asked(*objects: dict[str, Any]) -> Hypothesis:
    return hypothesis(yaml.safe_dump_all(objects), "ml", NOW)


def landed(cluster: Saved, *objects: dict[str, Any]) -> Landing:
    return answer(cluster, asked(*objects))


def test_a_job_that_fits_is_told_its_nodes_and_spare() -> None:
    landing = landed(saved(nodes=[make_node(f"n{one}") for one in range(4)]), job())
    (gang,) = landing.gangs
    assert landing.fits
    assert (gang.name, gang.pods, gang.fits) == ("Job ml/new", 3, True)
    assert {rank.rank: rank.node for rank in gang.ranks} == {0: "n0", 1: "n1", 2: "n2"}
    assert gang.spares == ["n3"]


def test_a_job_that_does_not_fit_is_told_what_would_make_room() -> None:
    running = [make_pod(f"other-{rank}", job="other", rank=rank, node=f"n{rank}") for rank in range(2)]
    cluster = saved(
        nodes=[make_node(f"n{one}") for one in range(4)],
        pods=running,
        jobs=[make_job("other", 2)],
        placements=[make_placement("other", {0: "n0", 1: "n1"})],
    )
    landing = landed(cluster, job())
    assert not landing.fits
    assert landing.gangs[0].message == (
        "needs 3 nodes with 8 free GPUs; 2 healthy and free, 2 in use; fits first when Job ml/other ends"
    )


def test_health_counts_as_of_the_time_of_the_snapshot() -> None:
    cluster = saved(nodes=[make_node("n0")], gpunodes=[make_gpunode("n0", age_seconds=2)])
    assert landed(cluster, job(1)).fits
    stale = saved(nodes=[make_node("n0")], gpunodes=[make_gpunode("n0", age_seconds=999)])
    assert "of unknown health" in landed(stale, job(1)).gangs[0].message


def test_labels_that_contradict_each_other_are_told() -> None:
    nodes = [
        make_node("n0", "leaf-0", "spine-0"),
        make_node("n1", "leaf-0", "spine-1"),
        make_node("n2", "leaf-1", "spine-1"),
    ]
    (note,) = landed(saved(nodes=nodes), job(1)).notes
    assert note.startswith("topology labels: ")
    assert "leaf-0" in note


@settings(deadline=None)
@given(
    busy=st.lists(st.integers(0, 8), min_size=6, max_size=6),
    sick=st.sets(st.integers(0, 5), max_size=3),
    size=st.integers(1, 7),
    gpus=st.sampled_from([1, 4, 8]),
    level=st.sampled_from(["", "leaf", "spine", "nonsense"]),
)
def test_the_answer_from_a_file_is_the_planners_own_step_on_the_same_cluster(
    busy: list[int], sick: set[int], size: int, gpus: int, level: str
) -> None:
    nodes = [make_node(f"n{one}", f"leaf-{one // 2}") for one in range(6)]
    pods = [make_pod(f"p{one}", gpus=used, node=f"n{one}") for one, used in enumerate(busy) if used]
    health = [make_gpunode(f"n{one}", verdict=Verdict.REPLACE, reason="xid/79") for one in sick]
    body = job(size, gpus=gpus)
    if level:
        body["spec"]["template"]["metadata"] = {"annotations": {"outrider.dev/required-level": level}}
    wanted = asked(body)
    from_file = answer(decode(encode(saved(nodes=nodes, pods=pods, gpunodes=health), packed=True)), wanted)

    world = make_world(*nodes, *pods, *health, *wanted.owners, *wanted.pods)
    gang = world.gang(wanted.owners[0].metadata.uid)
    assert gang is not None
    step = advance(gang, world.publish(), RULES, NOW)
    (said,) = from_file.gangs
    assert step.status is not None
    assert (said.fits, said.message) == (step.outcome == "planned", step.message)
    assert (said.ranks, said.spares, said.why) == (step.status.ranks, step.status.spares, step.status.why)


def test_two_jobs_of_one_manifest_do_not_get_the_same_nodes() -> None:
    cluster = saved(nodes=[make_node(f"n{one}") for one in range(4)])
    landing = landed(cluster, job(2, "a"), job(2, "b"))
    nodes = [rank.node for gang in landing.gangs for rank in gang.ranks]
    assert sorted(nodes) == ["n0", "n1", "n2", "n3"]
    assert not landed(cluster, job(2, "a"), job(3, "b")).fits


def test_a_pod_on_its_own_is_told_how_many_nodes_take_it() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "solo"}, **template(1)}
    landing = landed(saved(nodes=[make_node("n0"), make_node("n1")]), pod)
    assert landing.gangs[0].message.startswith("2 nodes take it now")
    nowhere = landed(saved(nodes=[make_node("n0", gpus=0)]), pod)
    assert (nowhere.fits, nowhere.gangs[0].message) == (
        False,
        "needs 1 node with 1 free GPU; the cluster has no node with GPUs",
    )


def test_what_asks_for_no_gpu_or_another_scheduler_is_named_and_left_out() -> None:
    cluster = saved(nodes=[make_node("n0")])
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    landing = landed(cluster, job(1, "plain", gpus=0), job(1, "theirs", schedulerName="volcano"), job(1), service)
    assert [gang.name for gang in landing.gangs] == ["Job ml/new"]
    assert landing.notes == [
        "Service s: makes no pods that are planned here",
        "2 pods without GPUs, or for another scheduler, not placed by Outrider: plain-0 and theirs-0",
    ]


def test_a_snapshot_survives_its_file_and_gives_the_same_answer() -> None:
    cluster = saved(
        nodes=[make_node(f"n{one}") for one in range(3)], pods=gang_pods("old", 1), jobs=[make_job("old", 1)]
    )
    for packed in (False, True):
        again = decode(encode(cluster, packed=packed))
        assert again == cluster
        assert landed(again, job(2)) == landed(cluster, job(2))


def test_everything_that_the_planner_takes_in_is_in_a_snapshot() -> None:
    taken_in = {name for name in vars(World) if name.startswith("on_")}
    assert taken_in == {feed.__name__ for _, feed in feeds()}


def test_nothing_that_people_keep_secret_gets_into_a_snapshot() -> None:
    notes = {
        "kubectl.kubernetes.io/last-applied-configuration": "s3cret",
        "team.example/token": "s3cret",
        "batch.kubernetes.io/job-completion-index": "0",
        "outrider.dev/why": "x" * 2000,
    }
    bare = make_pod("p", job="train", rank=0)
    pod = msgspec.structs.replace(bare, metadata=msgspec.structs.replace(bare.metadata, annotations=notes))
    raw = {**msgspec.to_builtins(pod), "env": "s3cret"}
    raw["spec"]["containers"][0] |= {"env": [{"name": "A", "value": "s3cret"}], "command": ["s3cret"]}
    data = encode(saved(pods=[msgspec.convert(raw, Pod)]), packed=False)
    assert b"s3cret" not in data
    assert b"job-completion-index" in data
    assert b"xxxx" not in data


def kind(group: str, name: str, spec: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    return {"apiVersion": f"{group}/{version}", "kind": name, "metadata": {"name": "new"}, "spec": spec}


def indexed(size: int) -> dict[str, Any]:
    return {"spec": {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": template()}}


RAY = {
    "headGroupSpec": {"template": template()},
    "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "template": template()}],
}
RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch"},
    "spec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": indexed(1)}]}}},
}


@pytest.mark.parametrize(
    ("objects", "pods"),
    [
        ([job(4)], 4),
        (
            [
                kind(
                    "jobset.x-k8s.io",
                    "JobSet",
                    {"replicatedJobs": [{"name": "w", "replicas": 2, "template": indexed(2)}]},
                )
            ],
            4,
        ),
        (
            [
                kind(
                    "leaderworkerset.x-k8s.io",
                    "LeaderWorkerSet",
                    {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}},
                )
            ],
            4,
        ),
        (
            [
                kind(
                    "kubeflow.org",
                    "PyTorchJob",
                    {
                        "pytorchReplicaSpecs": {
                            "Master": {"template": template()},
                            "Worker": {"replicas": 3, "template": template()},
                        }
                    },
                )
            ],
            4,
        ),
        ([kind("kubeflow.org", "TFJob", {"tfReplicaSpecs": {"Worker": {"replicas": 4, "template": template()}}})], 4),
        (
            [
                kind(
                    "kubeflow.org",
                    "MPIJob",
                    {
                        "mpiReplicaSpecs": {
                            "Launcher": {"template": template()},
                            "Worker": {"replicas": 3, "template": template()},
                        }
                    },
                    "v2beta1",
                )
            ],
            4,
        ),
        ([kind("kubeflow.org", "MPIJob", {"mpiReplicaSpecs": {"Worker": {"replicas": 4, "template": template()}}})], 4),
        ([kind("ray.io", "RayCluster", RAY)], 3),
        ([kind("ray.io", "RayJob", {"rayClusterSpec": RAY})], 3),
        ([kind("apps", "StatefulSet", {"replicas": 4, "template": template()})], 4),
        (
            [
                kind(
                    "batch.volcano.sh",
                    "Job",
                    {"tasks": [{"name": "w", "replicas": 4, "template": template()}]},
                    "v1alpha1",
                )
            ],
            4,
        ),
        (
            [
                kind("trainer.kubeflow.org", "TrainJob", {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 4}}),
                RUNTIME,
            ],
            4,
        ),
        ([{"apiVersion": "v1", "kind": "List", "items": [job(2, "a"), job(2, "b")]}], 4),
    ],
    ids=lambda value: value[0]["kind"] if isinstance(value, list) else "",
)
def test_the_pods_of_each_kind_are_those_that_its_controller_makes(objects: list[dict[str, Any]], pods: int) -> None:
    wanted = asked(*objects)
    assert len(wanted.pods) == pods
    assert len({pod.metadata.name for pod in wanted.pods}) == pods
    assert len({pod.metadata.uid for pod in wanted.pods}) == pods
    landing = answer(saved(nodes=[make_node(f"n{one}") for one in range(6)]), wanted)
    assert landing.fits, landing
    assert sum(len(gang.ranks) for gang in landing.gangs) == pods


def test_the_gang_of_a_jobset_is_known_by_its_owner() -> None:
    jobset = kind(
        "jobset.x-k8s.io", "JobSet", {"replicatedJobs": [{"name": "w", "replicas": 2, "template": indexed(2)}]}
    )
    wanted = asked(jobset)
    assert len({gang.uid for pod in wanted.pods if (gang := gang_of(pod))}) >= 1
    assert all(pod.metadata.namespace == "ml" for pod in wanted.pods)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the manifest holds no object"),
        ("a: [", "no YAML or JSON"),
        ("- 1", "document 1: [1] is no Kubernetes object: it needs apiVersion, kind and metadata"),
        ("kind: Job", "document 1: apiVersion and kind are needed"),
        (
            "{apiVersion: v1, kind: Service, metadata: {name: s}}",
            "Service s: makes no pods that are planned here; give one of JAXJob, Job, ",
        ),
        (
            "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: j}, spec: {replicatedjobs: []}}",
            "JobSet j: has no pods as written: look at its replicas, and at how its lists are spelled",
        ),
        ("{apiVersion: batch/v1, kind: Job, metadata: {name: j}}", "Job j.spec: is missing"),
        ("{apiVersion: batch/v1, kind: Job, metadata: {name: 5}, spec: {}}", "metadata.name: 5 is no text"),
        (
            "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: many}}",
            "Job j.spec.parallelism: 'many' is no number of pods: write 0 to 16384",
        ),
        (
            "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: -1}}",
            "Job j.spec.parallelism: -1 is no number of pods",
        ),
        (
            "{apiVersion: trainer.kubeflow.org/v1, kind: TrainJob, spec: {runtimeRef: {name: torch}}}",
            "put the runtime into the same manifest, after ---: kubectl get clustertrainingruntime torch -o yaml",
        ),
        (json.dumps(job(gpus="eight")), "pod new-0: not a quantity: 'eight'"),
        (json.dumps(job(nodeSelector={"a": 1})), "nodeSelector"),
        ('{"apiVersion": "v1", "kind": "Pod", "spec": "\\uD800"}', "has '\\ud800', which is no character: remove it"),
        ("a: &a [*a]\napiVersion: v1\nkind: Pod\n", "aliases make it too large or too deep"),
        (
            "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {pytorchReplicaSpecs: {1: {replicas: 2}}}}",
            "the manifest has a field called 1: put its name in quotes",
        ),
    ],
)
def test_a_bad_manifest_is_refused_with_the_field_and_the_way_out(text: str, words: str) -> None:
    with pytest.raises(BadManifest) as refused:
        hypothesis(text, "ml", NOW)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is no JSON object"),
        (b"\x1f\x8bxx", "no whole gzip file"),
        (b"{}", "kind: '' is no OutriderSnapshot"),
        (b'{"kind":"OutriderSnapshot","version":7}', "reads version 1, not 7"),
        (b'{"kind":"OutriderSnapshot","version":1}', "does not decode"),
        (b'{"kind":"OutriderSnapshot","version":1,"taken":"noon"}', "taken: 'noon' is no time"),
        (
            b'{"kind":"OutriderSnapshot","version":1,"taken":"2026-01-31T12:00:00Z","settings":{"topologyPreset":"x"}}',
            "unknown topology preset 'x'",
        ),
    ],
)
def test_a_file_that_is_no_snapshot_is_refused_with_the_way_out(data: bytes, words: str) -> None:
    with pytest.raises(BadSnapshot) as refused:
        decode(data)
    assert words in str(refused.value)


def test_an_object_that_does_not_decode_is_named() -> None:
    broken = msgspec.structs.replace(saved(), objects={"nodes": [msgspec.Raw(b'{"metadata": 5}')]})
    with pytest.raises(BadSnapshot, match=r"objects.nodes\[0\].*take the snapshot again"):
        landed(broken, job())


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda tail: b"\x1f\x8b\x08" + tail))
def test_no_bytes_crash_the_reader_of_snapshots(data: bytes) -> None:
    with suppress(BadSnapshot):
        decode(data)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "spec",
                    "template",
                    "replicas",
                    "parallelism",
                    "containers",
                    "labels",
                    "name",
                    "tasks",
                    "resources",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.text(max_size=200)
    | st.tuples(
        st.sampled_from(
            [("batch/v1", "Job"), ("v1", "Pod"), ("batch.volcano.sh/v1alpha1", "Job"), ("ray.io/v1", "RayJob")]
        ),
        _VALUES,
        _VALUES,
    ).map(lambda one: json.dumps({"apiVersion": one[0][0], "kind": one[0][1], "metadata": one[1], "spec": one[2]}))
)
def test_no_text_crashes_the_reader_of_manifests(text: str) -> None:
    with suppress(BadManifest):
        answer(saved(nodes=[make_node("n0")]), hypothesis(text, "ml", NOW))


def run(*arguments: str | Path, stdin: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "scheduler_plugin.offline", *arguments, "--release-namespace", "none"],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )
    return done.returncode, done.stdout, done.stderr


def test_the_program_answers_from_a_file_without_any_cluster(tmp_path: Path) -> None:
    file, manifest = tmp_path / "cluster.json.gz", tmp_path / "job.yaml"
    file.write_bytes(encode(saved(nodes=[make_node("n0")]), packed=True))
    manifest.write_text(yaml.safe_dump(job(1)))
    code, text, _ = run("plan", "--snapshot", file, "--file", manifest)
    assert (code, json.loads(text)["fits"]) == (0, True)
    code, text, _ = run("plan", "--snapshot", file, "--file", "-", stdin=yaml.safe_dump(job(2)))
    assert (code, json.loads(text)["fits"]) == (1, False)
    settings = tmp_path / "settings.yaml"
    settings.write_text("requireGPUNode: true")
    code, text, _ = run("plan", "--snapshot", file, "--file", manifest, "--config", settings)
    assert "of unknown health" in json.loads(text)["gangs"][0]["message"]


def test_the_program_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    for arguments, words in (
        (("plan", "--file", "-", "--snapshot", tmp_path / "none"), "No such file"),
        (("plan", "--file", tmp_path / "none", "--snapshot", tmp_path / "none"), "none: No such file"),
    ):
        code, _, said = run(*arguments)
        assert code == 2
        assert said.startswith("outrider: ")
        assert words in said
        assert said.count("\n") == 1
