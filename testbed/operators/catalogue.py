"""Which controllers there are, where their manifests lie in their modules, and how their programs are started."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from testbed.errors import TestbedError


class Operator(msgspec.Struct, frozen=True):
    """One controller; everything that its manifests say is taken from there."""

    name: str
    """Folder under testbed/modules, too."""

    module: str
    """Go module whose folder holds the manifests."""

    program: str

    bases: tuple[str, ...]
    """Kustomizations of the module that are applied."""

    later: tuple[str, ...] = ()
    """Kustomizations whose objects its own webhooks judge: applied once it works."""

    arguments: tuple[str, ...] = ()

    config: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Content of the file for ``--config``, where flags do not reach far enough; empty: no file."""

    namespace: str = ""
    """Namespace of what the bases leave without one."""

    probe: str = ":8081/readyz"
    """Port and path that answer 200 once it works."""

    omitted: tuple[str, ...] = ()
    """Names of custom resource definitions that another controller's replace."""


_KUBEFLOW: Final = "github.com/kubeflow"
_ALONE: Final = "--leader-elect=false"  # a killed leader's lease would hold up its successor for 15 s
# The quotas of one operator for a whole cluster; the defaults of 5 and 20 requests a second make tests wait.
_SWIFT: Final = ("--kube-api-qps=200", "--kube-api-burst=400")

CATALOGUE: Final = (
    Operator("jobset", "sigs.k8s.io/jobset", "jobset", ("config/default",), arguments=(_ALONE,)),
    Operator("lws", "sigs.k8s.io/lws", "lws", ("config/default",), arguments=(_ALONE,)),
    Operator(
        "training-operator",
        f"{_KUBEFLOW}/training-operator",
        "training-operator.v1",
        ("manifests/overlays/standalone",),
        # All its kinds but MPIJob: its v1 and the MPI operator's v2beta1 want the same resource name.
        arguments=(*_SWIFT, *(f"--enable-scheme={kind}job" for kind in ("pytorch", "tf", "jax", "xgboost", "paddle"))),
        omitted=("mpijobs.kubeflow.org",),
    ),
    Operator(
        "trainer",
        f"{_KUBEFLOW}/trainer/v2",
        "trainer-controller-manager",
        # Its own overlay fetches JobSet's manifests from the network; JobSet is a controller of its own here.
        tuple(f"manifests/base/{base}" for base in ("crds", "manager", "rbac", "webhook")),
        ("manifests/base/runtimes",),
        config={
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "webhook": {"host": ""},  # without it v2.1.0 ends on a nil pointer
        },
        namespace="kubeflow-system",
    ),
    Operator(
        "mpi-operator",
        f"{_KUBEFLOW}/mpi-operator",
        "mpi-operator",
        ("manifests/overlays/standalone",),
        arguments=("-alsologtostderr", *_SWIFT),
        probe=":8080/healthz",
    ),
    Operator(
        "kuberay",
        "github.com/ray-project/kuberay/ray-operator",
        "ray-operator",
        ("config/default",),
        arguments=("--enable-leader-election=false",),
        probe=":8082/readyz",
    ),
)
"""Trainer needs JobSet beside it."""


def operator(name: str) -> Operator:
    """The operator of that name.

    Raises:
        TestbedError: there is none.
    """
    for one in CATALOGUE:
        if one.name == name:
            return one
    raise TestbedError(f"no controller is named {name!r}; there are {', '.join(one.name for one in CATALOGUE)}")
