"""`outrider ungate`: frees pods that wait for a planner. Needs a kubeconfig and nothing of Outrider in the cluster."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from outrider.api.coordination import Lease
from outrider.api.core import Pod
from outrider.api.names import GANG_GATE, IGNORE_LABEL, PLANNER_LEASE, SCHEDULER_NAME, WEBHOOK_CONFIGURATION
from outrider.cli.checks import held
from outrider.cli.targets import Target
from outrider.kube.client import Client, PatchType, Selector
from outrider.kube.errors import Conflict, Invalid, KubeError, NotFound
from outrider.kube.kinds import LEASES, PODS
from outrider.words import listed, one_line, plural
from outrider.workloads import gang_of, gated

_AT_ONCE: Final = 16
_TRIES: Final = 3  # a pod that changes under our hands is read again
_LABEL_PATH: Final = f"/metadata/labels/{IGNORE_LABEL.replace('/', '~1')}"


class Freed(msgspec.Struct, frozen=True, rename="camel"):
    """What became of one pod. ``problem`` is empty where its gate is lifted, or would be in a dry run."""

    pod: str
    problem: str = ""


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    """The whole answer. ``warnings`` say what is lost by it."""

    dry_run: bool
    pods: list[Freed]
    warnings: list[str]

    @property
    def done(self) -> bool:
        """True where there was something to free and all of it was freed."""
        return bool(self.pods) and not any(one.problem for one in self.pods)


async def ungate(
    client: Client, target: Target | None, namespace: str, *, dry_run: bool, release_namespace: str, now: float
) -> Outcome:
    """Lift our gate from the waiting pods of a target, of everything without one; ``namespace`` empty for all.

    Raises KubeError where the pods can't be listed.
    """
    there = (await client.list(PODS, Selector(namespace=namespace))).items
    waiting = [pod for pod in there if gated(pod) and (target is None or target.has(pod))]
    warnings = losses(waiting, planner=await _planner(client, release_namespace, now)) if waiting else []
    if dry_run:
        return Outcome(True, [Freed(pod.key) for pod in waiting], warnings)
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(pod: Pod) -> Freed:
        async with turns:
            return Freed(pod.key, await _free(client, pod))

    return Outcome(False, list(await asyncio.gather(*map(one, waiting))), warnings)


def patch_of(pod: Pod) -> list[dict[str, Any]]:
    """Return the JSON patch that lifts our gate alone, and no other pod's; it fails where the pod has changed.

    The label tells an extender that still runs to treat the pod as one without a gang: it would wait for a plan else.
    """
    gate = next(index for index, gate in enumerate(pod.spec.scheduling_gates) if gate.name == GANG_GATE)
    label = (
        {"op": "add", "path": _LABEL_PATH, "value": "true"}
        if pod.metadata.labels
        else {"op": "add", "path": "/metadata/labels", "value": {IGNORE_LABEL: "true"}}
    )
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": f"/spec/schedulingGates/{gate}/name", "value": GANG_GATE},
        label,
        {"op": "remove", "path": f"/spec/schedulingGates/{gate}"},
    ]


async def _free(client: Client, pod: Pod) -> str:
    """Lift the gate; return what prevented it, empty for nothing. A pod that is gone or free already is no problem."""
    said = ""
    for _ in range(_TRIES):
        if not gated(pod):
            return ""
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            await client.patch(PODS, name, patch_of(pod), PatchType.JSON, namespace)
        except NotFound:
            return ""
        except (Conflict, Invalid) as error:
            said = one_line(error)
            try:
                pod = await client.get(PODS, name, namespace)
            except NotFound:
                return ""
        except KubeError as error:
            return one_line(error)
        else:
            return ""
    return said


async def _planner(client: Client, namespace: str, now: float) -> str:
    """Return who leads as planner, empty for nobody."""
    try:
        lease: Lease = await client.get(LEASES, PLANNER_LEASE, namespace)
    except KubeError:
        return ""
    return lease.spec.holder_identity if held(lease, now) else ""


def losses(pods: Sequence[Pod], *, planner: str = "") -> list[str]:
    """Return what people lose by freeing these pods."""
    gangs = sorted({f"{gang.kind} {pod.metadata.namespace}/{gang.name}" for pod in pods if (gang := gang_of(pod))})
    said = []
    if gangs:
        said.append(
            f"placement as a whole is lost for {listed(gangs, 3)}: the pods are scheduled one by one, perhaps only "
            "some of them and far apart; pods that their controller makes anew wait for a plan again"
        )
    if planner:
        said.append(f"a planner leads ({planner}) and would place them itself: outrider why says what they wait for")
    stuck = sum(pod.spec.scheduler_name == SCHEDULER_NAME for pod in pods)
    if stuck:
        said.append(
            f"{plural(stuck, 'pod')} still {'goes' if stuck == 1 else 'go'} to {SCHEDULER_NAME}: where that runs no "
            f"more, delete the webhook configuration {WEBHOOK_CONFIGURATION}, then the pods"
        )
    others = [pod.key for pod in pods if len(pod.spec.scheduling_gates) > 1]
    if others:
        said.append(f"other scheduling gates stay on {listed(others, 3)}")
    return said


def outcome_lines(outcome: Outcome) -> RenderableType:
    """Return a line for each pod, then what is lost."""
    if not outcome.pods:
        return Text("no pod waits for Outrider there. Next: kubectl get pods -A --field-selector status.phase=Pending")
    words = "gate would be lifted" if outcome.dry_run else "gate lifted"
    lines = [Text(f"{one.pod}: {one.problem or words}") for one in outcome.pods]
    return Group(*lines, "", *(Text(f"Note: {one}") for one in outcome.warnings))
