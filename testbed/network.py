"""Bridge, cables, network namespaces and routes of the real nodes, by iproute2."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from testbed.errors import TestbedError
from testbed.plan import NODES_MAX, Plan


def add_bridge(plan: Plan) -> None:
    """Create the host's bridge, on whose address the control plane listens."""
    _ip(
        f"link add {plan.bridge} address {plan.mac()} type bridge",
        f"address add {plan.host}/24 dev {plan.bridge}",
        f"link set {plan.bridge} up",
    )


def add_node(plan: Plan, index: int) -> None:
    """Create a node's network namespace, its cable to the bridge, and the routes between pods of all nodes.

    Routes to every possible node are set at once: pods then reach each other without forwarding on the host.
    """
    netns, link = plan.netns(index), plan.link(index)
    _ip(
        f"netns add {netns}",
        f"link add {link} type veth peer name eth0 address {plan.mac(index)} netns {netns}",
        f"link set {link} master {plan.bridge} up",
        f"route replace {plan.pods(index)} via {plan.node_ip(index)} dev {plan.bridge}",
    )
    inside = [
        "link set lo up",
        f"address add {plan.node_ip(index)}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {plan.host}",
    ]
    inside += [f"route add {plan.pods(i)} via {plan.node_ip(i)}" for i in range(NODES_MAX) if i != index]
    _ip(*inside, netns=netns)


def remove_node(plan: Plan, index: int) -> None:
    """Remove what `add_node` made, as far as it is there; the cable goes with its namespace."""
    _try("ip", "link", "delete", plan.link(index))
    _try("ip", "netns", "delete", plan.netns(index))


def set_link(plan: Plan, index: int, *, up: bool) -> None:
    """Plug a node's cable in or pull it."""
    _ip(f"link set {plan.link(index)} {'up' if up else 'down'}")


def remove_all(plan: Plan) -> None:
    """Remove every namespace, link and route of this slot, whoever left them; routes go with the bridge."""
    for path in Path("/run/netns").glob(f"outrider{plan.slot}-*"):
        _try("ip", "netns", "delete", path.name)
    for path in Path("/sys/class/net").glob(f"or{plan.slot}n*"):
        _try("ip", "link", "delete", path.name)
    _try("ip", "link", "delete", plan.bridge)


def _ip(*commands: str, netns: str | None = None) -> None:
    enter = ["-netns", netns] if netns else []
    _run(["ip", *enter, "-batch", "-"], commands)


def _run(argv: list[str], commands: Iterable[str]) -> None:
    text = "\n".join(commands)
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{' '.join(argv)}: {done.stderr.strip()} (in: {text[:300]})"
        raise TestbedError(message)


def _try(*argv: str) -> None:
    subprocess.run(argv, capture_output=True, check=False)
