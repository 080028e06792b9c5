"""What the chart's pre-delete hook runs: takes off the cluster all of ours that could block anything.

Order matters: the webhook configuration goes first, so that no new pod is gated; then our components, since a running
agent would set its taint again; then gates, taints, node conditions and annotations. Every step may run twice.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

from outrider.api import names, reasons
from outrider.api.core import Node, Pod
from outrider.api.meta import ObjectMeta, Root
from outrider.cli.resources import COMPONENT_LABEL, OURS
from outrider.kube.client import Client, PatchType, Selector
from outrider.kube.errors import Conflict, Invalid, NotFound
from outrider.kube.events import EventRecorder
from outrider.kube.kinds import DEVICETAINTRULES, LEASES, NODES, PODS, WEBHOOK_CONFIGURATIONS, Kind
from outrider.kube.transport import connect
from outrider.service import run
from outrider.telemetry import logs

_LOG: Final = logging.getLogger(__name__)
_PASSES: Final = 5  # an object that changes under our hands is read again this often
_STOP_SECONDS: Final = 60.0  # longest wait for our components' pods to end
_ANNOTATIONS: Final = (names.CHECKPOINT_REQUEST_ANNOTATION, names.WHY_ANNOTATION)


class _Named(Root, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


_DEPLOYMENTS: Final = Kind(_Named, "deployments", group="apps")
_DAEMONSETS: Final = Kind(_Named, "daemonsets", group="apps")
_SECRETS: Final = Kind(_Named, "secrets")


def pod_patch(pod: Pod) -> dict[str, Any] | None:
    """Return the merge patch that lifts our gate and removes our annotations; None where the pod has none of them.

    The resource version in it makes the API server refuse the patch where the pod has changed since.
    """
    annotations = {key: None for key in _ANNOTATIONS if key in pod.metadata.annotations}
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    if not annotations and names.GANG_GATE not in gates:
        return None
    patch: dict[str, Any] = {
        "metadata": {"resourceVersion": pod.metadata.resource_version, "annotations": annotations},
    }
    if names.GANG_GATE in gates:
        patch["spec"] = {"schedulingGates": [{"name": gate} for gate in gates if gate != names.GANG_GATE]}
    return patch


def taint_patch(node: Node) -> list[dict[str, Any]]:
    """Return the JSON patch that removes our taint if it is still there; empty where the node has none."""
    ours = [index for index, taint in enumerate(node.spec.taints) if taint.key == names.UNHEALTHY_TAINT]
    steps: list[dict[str, Any]] = []
    for index in reversed(ours):
        path = f"/spec/taints/{index}"
        steps += [{"op": "test", "path": f"{path}/key", "value": names.UNHEALTHY_TAINT}, {"op": "remove", "path": path}]
    return steps


def stranded(pod: Pod) -> bool:
    """True for a pod that only our scheduler would have placed: a pod's schedulerName can't be changed."""
    return pod.spec.scheduler_name == names.SCHEDULER_NAME and not pod.spec.node_name and not pod.finished


async def clean(client: Client, namespace: str) -> None:
    """Remove everything of ours that could block anything. Raises KubeError where the API server refuses."""
    await client.delete(WEBHOOK_CONFIGURATIONS, names.WEBHOOK_CONFIGURATION)
    await _stop_components(client, namespace)
    await _until_nothing_is_left("pods", lambda: _clean_pods(client))
    await _until_nothing_is_left("nodes", lambda: _clean_nodes(client))
    await _clean_devices(client)
    await client.delete(_SECRETS, names.WEBHOOK_SECRET, namespace)
    for lease in (names.PLANNER_LEASE, names.REMEDIATION_LEASE, names.WEBHOOK_LEASE, names.SCHEDULER_LEASE):
        await client.delete(LEASES, lease, namespace)
    await _tell_stranded_pods(client)


async def _stop_components(client: Client, namespace: str) -> None:
    for name in ("outrider-webhook", "outrider-scheduler", "outrider-remediation"):
        await client.delete(_DEPLOYMENTS, name, namespace)
    await client.delete(_DAEMONSETS, "outrider-node-agent", namespace)
    parts = f"{COMPONENT_LABEL} in (webhook,scheduler,remediation,node-agent)"
    selector = Selector(namespace=namespace, labels=f"{OURS},{parts}")
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            while running := (await client.list(PODS, selector)).items:
                _LOG.info("waiting for our own pods to end", extra={"pods": [pod.key for pod in running]})
                await asyncio.sleep(1)
    except TimeoutError:
        _LOG.warning("our own pods did not end; a node may be down. Its taint may come back with it")


async def _until_nothing_is_left(what: str, sweep: Callable[[], Awaitable[int]]) -> None:
    for _ in range(_PASSES):
        changed = await sweep()
        _LOG.info("cleaned", extra={"what": what, "changed": changed})
        if not changed:
            return


async def _clean_pods(client: Client) -> int:
    patches = [(pod, patch) for pod in (await client.list(PODS)).items if (patch := pod_patch(pod))]
    for pod, patch in patches:
        await _patch(client.patch(PODS, pod.metadata.name, patch, PatchType.MERGE, pod.metadata.namespace), pod.key)
    return len(patches)


async def _clean_nodes(client: Client) -> int:
    changed = 0
    for node in (await client.list(NODES)).items:
        name = node.metadata.name
        if patch := taint_patch(node):
            changed += 1
            await _patch(client.patch(NODES, name, patch, PatchType.JSON), name)
        if any(condition.type == names.GPU_CONDITION for condition in node.status.conditions):
            changed += 1
            body = {"status": {"conditions": [{"$patch": "delete", "type": names.GPU_CONDITION}]}}
            await _patch(client.patch(NODES, name, body, PatchType.STRATEGIC, subresource="status"), name)
    return changed


async def _clean_devices(client: Client) -> None:
    try:
        rules = (await client.list(DEVICETAINTRULES, Selector(labels=names.AGENT_NODE_LABEL))).items
    except NotFound:  # this cluster can't taint single devices
        return
    for rule in rules:
        await client.delete(DEVICETAINTRULES, rule.metadata.name)
    _LOG.info("cleaned", extra={"what": "devicetaintrules", "changed": len(rules)})


async def _patch(request: Awaitable[object], what: str) -> None:
    try:
        await request
    except (Conflict, Invalid, NotFound) as error:  # changed or gone since it was read: the next pass reads it again
        _LOG.info("will look again", extra={"object": what, "answer": str(error)})


async def _tell_stranded_pods(client: Client) -> None:
    recorder = EventRecorder(client, names.HOOKS_MANAGER)
    for pod in filter(stranded, (await client.list(PODS)).items):
        _LOG.warning(
            "waits for a scheduler that is gone: delete it, and its controller makes a new one", extra={"pod": pod.key}
        )
        message = (
            "Outrider was uninstalled and nothing schedules this pod any more: run 'kubectl delete pod -n "
            f"{pod.metadata.namespace} {pod.metadata.name}'; its controller makes a new one for the default scheduler"
        )
        await recorder.emit(pod, PODS, reason=reasons.UNINSTALLED, message=message, warning=True)


async def _main() -> None:
    logs.setup("uninstall")
    async with connect(names.HOOKS_MANAGER) as client:
        await clean(client, os.environ["POD_NAMESPACE"])


if __name__ == "__main__":
    run(_main)
