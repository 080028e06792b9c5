"""Bridge, cables, network namespaces and routes of the real nodes, by iproute2."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from testbed.errors import TestbedError
from testbed.plan import NODES_MAX, Plan

_OPERATORS = 0xFE00  # where their hardware addresses begin, beyond those of the nodes


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
    netns = plan.netns(index)
    _add_namespace(plan, netns, plan.link(index), plan.mac(index), plan.node_ip(index))
    _ip(f"route replace {plan.pods(index)} via {plan.node_ip(index)} dev {plan.bridge}")
    _ip(*(f"route add {plan.pods(i)} via {plan.node_ip(i)}" for i in range(NODES_MAX) if i != index), netns=netns)


def add_operator(plan: Plan, index: int) -> None:
    """Create the network namespace of a controller of training jobs, with a cable to the bridge."""
    remove_operator(plan, index)
    mac = plan.mac(_OPERATORS + index)
    _add_namespace(plan, plan.operator_netns(index), plan.operator_link(index), mac, plan.operator_ip(index))


def remove_operator(plan: Plan, index: int) -> None:
    """Remove what `add_operator` made, as far as it is there."""
    _try("ip", "link", "delete", plan.operator_link(index))
    _try("ip", "netns", "delete", plan.operator_netns(index))


def _add_namespace(plan: Plan, netns: str, link: str, mac: str, address: str) -> None:
    _ip(
        f"netns add {netns}",
        f"link add {link} type veth peer name eth0 address {mac} netns {netns}",
        f"link set {link} master {plan.bridge} up",
    )
    _ip(
        "link set lo up",
        f"address add {address}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {plan.host}",
        netns=netns,
    )


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
