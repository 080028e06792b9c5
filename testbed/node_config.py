"""Configuration files of a real node: containerd, CNI, kubelet, kube-proxy."""

import json
from pathlib import Path
from typing import Any

import msgspec

from testbed import cleanup, control_plane, labels
from testbed.build import folder, program
from testbed.packages import CNI_PLUGINS, search_path
from testbed.state import State
from testbed.versions import NODES

SANDBOX_IMAGE = "outrider.dev/pause:1"
_CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
_KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
_DRIVER = "/run/nvidia/driver"
_CONTAINERD_TOML = """\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
address = "{socket}"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{sandbox}"

[plugins.'io.containerd.cri.v1.runtime']
disable_apparmor = true
disable_hugetlb_controller = true
# Without CAP_SYS_RESOURCE a container's score cannot go below containerd's own.
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{plugins}"]
conf_dir = "{cni}"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


class Node(msgspec.Struct, frozen=True):
    """One real node of a testbed."""

    state: State
    index: int

    @property
    def name(self) -> str:
        """Name, gpu-INDEX."""
        return f"gpu-{self.index}"

    @property
    def folder(self) -> Path:
        """The node's configuration and what a reboot empties."""
        return self.state.folder / "nodes" / self.name

    @property
    def disk(self) -> Path:
        """What a reboot keeps: images, containers, the kubelet's data."""
        return self.state.bulk / self.name

    @property
    def driver(self) -> Path:
        """Folder that the node sees as /run/nvidia/driver."""
        return self.folder / "driver"

    @property
    def volatile(self) -> Path:
        """Folder that a boot finds empty."""
        return self.folder / "run"

    @property
    def cgroup(self) -> str:
        """Control group of the node's pods and services."""
        return f"{cleanup.cgroup(self.state.name)}/{self.name}"

    @property
    def process(self) -> str:
        """Name under which the node's first process is recorded."""
        return self.name


def write(node: Node) -> None:
    """Write the configuration files of a node's programs."""
    cni = node.folder / "cni"
    cni.mkdir(parents=True, exist_ok=True)
    (cni / "10-testbed.conflist").write_text(json.dumps(_cni(node), indent=1))
    toml = _CONTAINERD_TOML.format(socket=_CONTAINERD_SOCKET, sandbox=SANDBOX_IMAGE, plugins=CNI_PLUGINS, cni=cni)
    (node.folder / "containerd.toml").write_text(toml)
    (node.folder / "kubelet.json").write_text(json.dumps(_kubelet(node), indent=1))
    (node.folder / "kube-proxy.json").write_text(json.dumps(_kube_proxy(node), indent=1))


def _cni(node: Node) -> dict[str, Any]:
    """ptp routes all traffic of pods, so Services work on the same node without the br_netfilter module."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": node.state.plan.pods(node.index)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(node.volatile / "cni"),
    }
    return {
        "cniVersion": "1.0.0",
        "name": "testbed",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}],
    }


def _kubelet(node: Node) -> dict[str, Any]:
    keys = control_plane.certificates(node.state)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": str(keys / "ca.crt")}, "anonymous": {"enabled": False}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(keys / f"{node.name}.crt"),
        "tlsPrivateKeyFile": str(keys / f"{node.name}.key"),
        "address": node.state.plan.node_ip(node.index),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{_CONTAINERD_SOCKET}",
        "clusterDNS": [node.state.plan.host],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "serializeImagePulls": False,
        "eventRecordQPS": 0,
        # The machine's disk is shared with whatever else is on it: the node is full only when the disk is.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
    }


def _kube_proxy(node: Node) -> dict[str, Any]:
    keep = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(node.folder / "kube-proxy.kubeconfig")},
        "clusterCIDR": node.state.plan.network,
        "hostnameOverride": node.name,
        "conntrack": keep,  # these settings belong to the machine, not to a namespace
    }


def mounts(node: Node, pytorch: Path) -> list[dict[str, Any]]:
    """What the node sees in place of the machine's folders and files."""
    return [
        _mount(node.disk / "kubelet", "/var/lib/kubelet", shared=True),
        _mount(node.disk / "containerd", "/var/lib/containerd"),
        _mount(node.disk / "log-pods", "/var/log/pods"),
        _mount(node.disk / "log-containers", "/var/log/containers"),
        _mount(node.disk / "outrider", "/var/lib/outrider"),  # each node's agent has a memory of its own
        _mount(node.volatile / "containerd", "/run/containerd", shared=True),
        # Pods' network namespaces: in the machine's folder they would outlive the node.
        _mount(node.volatile / "netns", "/run/netns", shared=True),
        _mount(node.driver, _DRIVER),
        _mount(node.state.bulk / "shared", "/mnt/shared"),
        _mount(node.driver / "boot_id", "/proc/sys/kernel/random/boot_id"),
        _mount(pytorch, "/opt/pytorch", read_only=True),
    ]


def _mount(source: Path, target: str, **options: bool) -> dict[str, Any]:
    return {"source": str(source), "target": target, **options}


def services(node: Node) -> list[dict[str, Any]]:
    """The node's programs in starting order."""
    own = {"PATH": f"{folder(NODES[1])}:{search_path()}"}
    return [
        _service("containerd", own, ["--config", str(node.folder / "containerd.toml")]),
        _service(
            "kubelet",
            own,
            [
                f"--config={node.folder / 'kubelet.json'}",
                f"--kubeconfig={node.folder / 'kubelet.kubeconfig'}",
                f"--hostname-override={node.name}",
                f"--node-ip={node.state.plan.node_ip(node.index)}",
                f"--node-labels={_joined(labels.real(node.state.profile, node.index))}",
            ],
            needs=_CONTAINERD_SOCKET,
        ),
        _service("kube-proxy", own, [f"--config={node.folder / 'kube-proxy.json'}"]),
        _service(
            "nvidia-device-plugin",
            own | {"LD_LIBRARY_PATH": f"{_DRIVER}/lib"},
            [
                "--device-discovery-strategy=nvml",
                "--device-list-strategy=envvar",
                "--pass-device-specs=false",
                "--fail-on-init-error=false",
            ],
            needs=_KUBELET_SOCKET,
        ),
    ]


def _service(name: str, env: dict[str, str], arguments: list[str], **options: Any) -> dict[str, Any]:
    return {"name": name, "argv": [str(program(name)), *arguments], "env": env, **options}


def _joined(pairs: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in pairs.items())
