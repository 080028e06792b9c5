"""A corpus of pods as the API server sends them to webhooks, and RFC 6902 as far as our patches use it."""

import copy
from collections.abc import Mapping
from typing import Any

JOB_UID = "6b1f0c1e-58e7-4c0e-9d6f-0d3f6a1f2b3c"
TORCHRUN = ["torchrun", "--nnodes=3", "--nproc-per-node=8", "--rdzv-backend=c10d", "--rdzv-endpoint=t-0.t:29400"]


def container(**fields: Any) -> dict[str, Any]:
    """A training container with eight GPUs."""
    defaults = {
        "name": "trainer",
        "image": "example.com/trainer:1",
        "command": [*TORCHRUN, "train.py", "--rdzv-conf", "is-the-scripts-own"],
        "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}},
    }
    return {key: value for key, value in (defaults | fields).items() if value is not None}


def pod(*containers: dict[str, Any], metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod of an Indexed Job: only generateName, as the job controller creates it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "train-0-",
            "creationTimestamp": None,
            "labels": {"batch.kubernetes.io/job-completion-index": "0", "batch.kubernetes.io/job-name": "train"},
            "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
            "ownerReferences": [owner()],
        }
        | dict(metadata or {}),
        "spec": {
            "schedulerName": "default-scheduler",
            "restartPolicy": "OnFailure",
            "containers": list(containers) or [container()],
        }
        | spec,
    }


def owner(kind: str = "Job", api_version: str = "batch/v1") -> dict[str, Any]:
    """A controller reference."""
    return {"apiVersion": api_version, "kind": kind, "name": "train", "uid": JOB_UID, "controller": True}


def sidecar() -> dict[str, Any]:
    """A container without GPUs."""
    return {"name": "proxy", "image": "example.com/proxy:1", "args": ["proxy"], "resources": {}}


_PYTORCHJOB = {
    "labels": {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "1"},
    "annotations": None,
    "ownerReferences": [owner("PyTorchJob", "kubeflow.org/v1")],
}
_SHELL = "export PET_MAX_RESTARTS=3\nexec torchrun \\\n  --nnodes 2 --rdzv_backend c10d --rdzv_conf a=1 train.py"

CORPUS: dict[str, dict[str, Any]] = {
    "indexed job": pod(),
    "pytorchjob with duplicate env": pod(
        container(
            name="pytorch",
            command=["python", "-m", "torch.distributed.run", "train.py"],
            env=[
                {"name": "PET_RDZV_BACKEND", "value": "static"},
                {"name": "PYTHONPATH", "value": "/first"},
                {"name": "PYTHONPATH", "value": "/src:$(HOME)"},
                {"name": "PET_RDZV_BACKEND", "value": "c10d"},
            ],
        ),
        metadata=_PYTORCHJOB,
    ),
    "bare pod": pod(container(command=None), metadata={"labels": {}, "ownerReferences": []}),
    "shell": pod(container(command=["bash", "-lc"], args=[_SHELL])),
    "sidecar and mounts": pod(
        sidecar(),
        container(volumeMounts=[{"name": "data", "mountPath": "/data"}], env=[{"name": "A", "value": "1"}]),
        volumes=[{"name": "data", "emptyDir": {}}],
        initContainers=[{"name": "fetch", "image": "example.com/fetch:1"}],
    ),
    "user settings": pod(
        container(
            env=[
                {"name": "PET_RDZV_CONF", "value": "last_call_timeout=30,timeout=900"},
                {"name": "PET_MAX_RESTARTS", "value": "0"},
                {"name": "PET_RDZV_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "TRACEPARENT", "value": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
            ]
        )
    ),
    "env from": pod(container(envFrom=[{"secretRef": {"name": "keys"}}])),
    "own scheduler": pod(schedulerName="volcano"),
    "claims": pod(
        container(resources={"claims": [{"name": "gpu"}]}), resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]
    ),
    "mig": pod(container(resources={"limits": {"nvidia.com/mig-1g.10gb": "1"}})),
    "root": pod(securityContext={"runAsUser": 0}),
    "bound": pod(nodeName="gpu-0"),
    "isolated python": pod(container(command=["python3", "-I", "train.py"])),
}


def apply(before: Mapping[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """Apply the additions of a JSON patch (RFC 6902 section 4.1) to a copy."""
    after = copy.deepcopy(dict(before))
    for operation in patch:
        assert operation["op"] == "add"
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target: Any = after
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        value = copy.deepcopy(operation["value"])
        if isinstance(target, list):
            assert last == "-", "nothing is put between the entries of others"
            target.append(value)
        else:
            assert isinstance(target, dict)
            target[last] = value
    return after


def env_of(changed: Mapping[str, Any], index: int = 0) -> dict[str, str]:
    """Return the literal environment of a container; the last entry of a name counts."""
    return {entry["name"]: entry.get("value", "") for entry in changed["spec"]["containers"][index].get("env", [])}
