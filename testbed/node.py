"""Real nodes: boot, power off, shut down, unplug, and wait until they are Ready."""

import json
import os
import re
import shutil
import signal
import sys
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

from outrider.api.names import RACK_LABEL
from testbed import (
    cleanup,
    control_plane,
    image_seed,
    kernel_log,
    kubeconfig,
    kwok,
    labels,
    network,
    node_config,
    nvml,
    processes,
    pytorch,
)
from testbed.certificates import Authority
from testbed.cgroups import Cgroups
from testbed.errors import TestbedError
from testbed.image_seed import Seed
from testbed.node_config import Node
from testbed.state import State

_READY_S = 120.0
_POLL_S = 0.1
_STOP_S = 10.0
_WRONG = re.compile(r"level=(error|fatal)|^E\d{4} |^Traceback|ended with status")


def all_of(state: State) -> list[Node]:
    """The real nodes of a testbed."""
    return [Node(state, index) for index in range(state.nodes)]


def start_all(state: State, seed: Seed) -> None:
    """Boot every node that is off, new ones with the images of a seed; they come up side by side."""
    for node in all_of(state):
        if not is_on(node):
            image_seed.plant(seed, node.disk)
            start(node)


def get(state: State, name: str) -> Node:
    """Real node of that name.

    Raises:
        TestbedError: the testbed has none.
    """
    if name in state.node_names:
        return Node(state, state.node_names.index(name))
    message = f"testbed {state.name} has no real node {name!r}; it has {', '.join(state.node_names) or 'none'}"
    raise TestbedError(message)


def is_on(node: Node) -> bool:
    """Whether the node's power is on."""
    return processes.find(node.state, node.process) is not None


def start(node: Node) -> None:
    """Boot a node: new boot id, empty kernel log, healthy GPUs; its disk is as it was.

    Raises:
        TestbedError: it is on already.
    """
    if is_on(node):
        message = f"{node.name} is on already: `node reboot {node.name}` restarts it"
        raise TestbedError(message)
    clear(node)
    _prepare_folders(node)
    _prepare_driver(node)
    _write_identities(node)
    node_config.write(node)
    network.add_node(node.state.plan, node.index)
    groups = Cgroups()
    groups.create(f"{node.cgroup}/system")
    boot = node.folder / "init.json"
    boot.write_text(json.dumps(_boot_config(node, groups), indent=1))
    processes.spawn(node.state, node.process, _boot_command(node, boot))


def kill(node: Node) -> None:
    """Power off: everything on the node ends at once, nothing is said to anybody."""
    pid = processes.find(node.state, node.process)
    if pid is None:
        message = f"{node.name} is off already: `node start {node.name}` boots it"
        raise TestbedError(message)
    network.set_link(node.state.plan, node.index, up=False)
    _signal_init(pid, signal.SIGKILL)
    processes.stop(node.state, node.process, _STOP_S)
    clear(node)


def stop(node: Node) -> None:
    """Shut the node down in order: its services are asked to end first."""
    pid = processes.find(node.state, node.process)
    if pid is None:
        return
    _signal_init(pid, signal.SIGTERM)
    processes.wait_gone([pid], _STOP_S)
    processes.stop(node.state, node.process, term_s=0)
    clear(node)


def reboot(node: Node) -> None:
    """Power off and boot again."""
    kill(node)
    start(node)


def repair(node: Node) -> None:
    """Power off, and boot with nothing known against its boards: the agent's evidence goes, as with new ones."""
    kill(node)
    shutil.rmtree(node.disk / "outrider", ignore_errors=True)
    start(node)


def partition(node: Node) -> None:
    """Pull the node's network cable; everything on it goes on running."""
    network.set_link(node.state.plan, node.index, up=False)


def heal(node: Node) -> None:
    """Plug the cable in again."""
    network.set_link(node.state.plan, node.index, up=True)


def clear(node: Node) -> None:
    """Remove what a node that is off left on the machine, and what a boot finds empty."""
    Cgroups().remove(node.cgroup)
    network.remove_node(node.state.plan, node.index)
    cleanup.unmount_below(node.folder, node.disk)
    shutil.rmtree(node.volatile, ignore_errors=True)


def wait_ready(state: State) -> None:
    """Wait until all nodes that are on are Ready and know all their GPUs, sick ones included.

    Raises:
        TestbedError: two minutes passed.
    """
    deadline = time.monotonic() + _READY_S
    while waiting := _not_ready(state):
        if time.monotonic() > deadline:
            words = "\n".join(_last_words(state, name) for name in waiting)
            message = f"not Ready within {_READY_S:.0f} s: {', '.join(waiting)}; see {state.folder / 'logs'}\n{words}"
            raise TestbedError(message)
        time.sleep(_POLL_S)


def _last_words(state: State, name: str) -> str:
    """What a node's services said last, where something went wrong."""
    found = []
    for log in sorted((state.folder / "logs").glob(f"{name}.*log")):
        errors = [line for line in log.read_text(errors="replace").splitlines() if _WRONG.search(line)]
        found += [f"  {log.name}: {line[:300]}" for line in errors[-2:]]
    return "\n".join(found)


def _not_ready(state: State) -> list[str]:
    with closing(control_plane.admin(state)) as api:
        nodes = {n["metadata"]["name"]: n for n in api.get("/api/v1/nodes?resourceVersion=0")["items"]}
    wanted = str(labels.profile(state.profile).gpus)
    return [
        name
        for name in state.node_names
        if not (
            name in nodes
            and kwok.is_ready(nodes[name])
            # Capacity, since a GPU that a test or the demo broke is not allocatable any more.
            and nodes[name]["status"].get("capacity", {}).get("nvidia.com/gpu") == wanted
        )
    ]


def _signal_init(pid: int, number: signal.Signals) -> None:
    """Signal the node's first process, the only child of the recorded unshare process."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(child), number)


def _prepare_folders(node: Node) -> None:
    folders = ("kubelet", "containerd", "log-pods", "log-containers", "outrider")
    for path in (*(node.disk / f for f in folders), node.volatile / "containerd", node.volatile / "netns"):
        path.mkdir(parents=True, exist_ok=True)
    for entry in _mounts(node):
        if not entry["target"].startswith("/proc/"):
            cleanup.make_mount_point(Path(entry["target"]))


def _prepare_driver(node: Node) -> None:
    node.driver.mkdir(parents=True, exist_ok=True)
    rack = labels.real(node.state.profile, node.index)[RACK_LABEL]
    nvml.install(node.driver / "lib", node.state.profile, node.name, rack=rack)
    (node.driver / "boot_id").write_text(f"{uuid.uuid4()}\n")
    kernel_log.create(node.driver / "kmsg")


def _write_identities(node: Node) -> None:
    url, authority = node.state.plan.api_url, Authority(control_plane.certificates(node.state))
    authority.server(node.name, [node.name, node.state.plan.node_ip(node.index)])
    kubelet, proxy = node.folder / "kubelet.kubeconfig", node.folder / "kube-proxy.kubeconfig"
    kubeconfig.write(kubelet, url, authority, f"system:node:{node.name}", "system:nodes")
    kubeconfig.write(proxy, url, authority, "system:kube-proxy")


def _mounts(node: Node) -> list[dict[str, Any]]:
    return node_config.mounts(node, pytorch.folder())


def _boot_config(node: Node, groups: Cgroups) -> dict[str, object]:
    return {
        "node": node.name,
        "logs": str(node.state.folder / "logs"),
        "cgroups": [str(root / node.cgroup / "system") for root in groups.hierarchies],
        "mounts": _mounts(node),
        "services": node_config.services(node),
    }


def _boot_command(node: Node, config: Path) -> list[object]:
    """Enter the network namespace with nsenter: `ip netns exec` would remount /sys, which hides the cgroups."""
    enter = ["nsenter", f"--net=/run/netns/{node.state.plan.netns(node.index)}"]
    unshare = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    init = Path(__file__).with_name("node_init.py")
    return [*enter, *unshare, sys.executable, "-I", "-S", init, config]
