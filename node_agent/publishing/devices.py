"""Which GPUs can be kept from new pods one by one, and how: a DeviceTaintRule for each sick one. Pure.

Where NVIDIA's DRA driver hands out the GPUs of the node, a taint on one device disturbs nothing else there. The
scheduler looks at device taints only for claims, so a node whose device plugin offers GPUs too is tainted as a whole.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from outrider.api.core import Node
from outrider.api.gpunode import Health, Mode
from outrider.api.meta import ObjectMeta
from outrider.api.names import AGENT_NODE_LABEL
from outrider.api.resource import DeviceSelector, DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, ResourceSlice
from outrider.health.findings import Evidence
from outrider.health.judge import Judgement
from outrider.health.taint import EFFECT, taint_for
from outrider.workloads.quantities import BadQuantity, milli
from outrider.workloads.resources import GPU

DRIVER: Final = "gpu.nvidia.com"
QUARANTINED: Final = "quarantined"
_UUIDS: Final = ("uuid", f"{DRIVER}/uuid", "parentUUID", f"{DRIVER}/parentUUID")  # the latter of a MIG device
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NAME_MAX: Final = 253

Devices = Mapping[str, list[str]]
"""Names of the DRA devices on each GPU, by UUID."""


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps new work off the sick hardware: rules by name, and the node's taint where those are not enough."""

    rules: dict[str, DeviceTaintRule] = {}
    kept: frozenset[str] = frozenset()
    """Names of rules that stay if they are there: of GPUs that nobody can see, since silence lifts nothing."""
    isolated: frozenset[str] = frozenset()
    """UUIDs of the GPUs that the rules hold."""
    taint: str | None = None
    """Value of the node's taint, None for no taint."""


def devices_of(slices: Iterable[ResourceSlice], node: Node) -> dict[str, list[str]]:
    """Return the DRA devices on each GPU; none where a device plugin offers GPUs as well.

    Only pools named as their node count, which is how drivers name pools of node-local devices: the API server lets
    the agent write rules for no others.
    """
    name = node.metadata.name
    if _offered_by_plugin(node):
        return {}
    specs = (one.spec for one in slices)
    ours = [spec for spec in specs if spec.driver == DRIVER and spec.pool.name == spec.node_name == name]
    newest = max((spec.pool.generation for spec in ours), default=0)
    devices: dict[str, list[str]] = {}
    for device in (device for spec in ours if spec.pool.generation == newest for device in spec.devices):
        for uuid in {value.string for key in _UUIDS if (value := device.attributes.get(key)) and value.string}:
            devices.setdefault(uuid, []).append(device.name)
    return devices


def _offered_by_plugin(node: Node) -> bool:
    try:
        return milli(node.status.allocatable.get(GPU, "0")) > 0
    except BadQuantity:
        return True


def isolation(findings: Iterable[Evidence], judgement: Judgement, devices: Devices, node: str, mode: Mode) -> Isolation:
    """Return what isolates the smallest part that holds each hard verdict; a person's wish for the node goes first."""
    if mode is Mode.PAUSED:
        return Isolation()
    rules, kept = dict[str, DeviceTaintRule](), set[str]()
    isolated = {
        uuid for uuid, opinion in judgement.gpus.items() if opinion.verdict.hard and _nameable(uuid, devices, node)
    }
    for uuid, opinion in judgement.gpus.items():
        for device in devices.get(uuid, []):
            rule = rule_for(node, device, opinion.reason)
            if uuid in isolated:
                rules[rule.metadata.name] = rule
            elif opinion.health is Health.UNKNOWN:
                kept.add(rule.metadata.name)
    taint = QUARANTINED if mode is Mode.QUARANTINED else _rest(findings, judgement, isolated)
    return Isolation(rules=rules, kept=frozenset(kept), isolated=frozenset(isolated), taint=taint)


def _nameable(uuid: str, devices: Devices, node: str) -> bool:
    names = [rule_name(node, device) for device in devices.get(uuid, [])]
    return bool(names) and all(len(name) <= _NAME_MAX for name in names)


def _rest(findings: Iterable[Evidence], judgement: Judgement, isolated: set[str]) -> str | None:
    """The value of the node's taint for what no rule holds: the reason of the gravest verdict, of equals the oldest."""
    if not judgement.node.verdict.hard:
        return None
    left = [one for one in findings if one.owner not in isolated and judgement.verdicts[one.key].hard]
    if not isolated or any(one.code == judgement.node.reason for one in left):
        return taint_for(judgement.node.reason).value
    gravest = min(left, key=lambda one: (-judgement.verdicts[one.key].severity, one.first_seen, one.key), default=None)
    return taint_for(gravest.code).value if gravest else None


def rule_for(node: str, device: str, reason: str) -> DeviceTaintRule:
    """Return the rule that taints a device for a reason such as xid/79."""
    taint = taint_for(reason)
    return DeviceTaintRule(
        metadata=ObjectMeta(name=rule_name(node, device), labels=labels_of(node)),
        spec=DeviceTaintRuleSpec(
            device_selector=DeviceSelector(driver=DRIVER, pool=node, device=device),
            taint=DeviceTaint(key=taint.key, value=taint.value, effect=EFFECT),
        ),
    )


def rule_name(node: str, device: str) -> str:
    """Return the rule's name. A device's name holds no dot, so it tells device and node apart for sure."""
    return f"outrider-{device}.{node}"


def labels_of(node: str) -> dict[str, str]:
    """Return the label by which the agent of a node finds its own rules again."""
    value = node if _LABEL.fullmatch(node) else hashlib.sha256(node.encode()).hexdigest()[:32]
    return {AGENT_NODE_LABEL: value}
