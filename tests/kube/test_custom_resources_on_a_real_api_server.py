"""What the API server refuses, so that no component ever reads it; and what it fills in."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from outrider.kube.client import Client, PatchType
from outrider.kube.errors import Invalid
from outrider.kube.kinds import GANGPLACEMENTS, GPUNODES, REMEDIATIONS, TRAININGPOLICIES, Kind
from testbed.build import program

pytestmark = pytest.mark.control_plane


def manifest(kind: Kind[Any], namespace: str, spec: Any) -> dict[str, Any]:
    """Return an object named after the test's namespace, so that cluster-scoped ones do not meet."""
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": namespace}, "spec": spec}


GANG = {"jobKind": "Job", "jobName": "train", "jobUid": "u", "size": 2}
EPISODE = {"node": "n1", "cause": "xid/79"}


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        (GPUNODES, {"mode": "Paused"}, "spec.reason is needed while mode is not Auto"),
        (GPUNODES, {"mode": "Quarantined", "reason": "  "}, "spec.reason is needed while mode is not Auto"),
        (GPUNODES, {"mode": "Sometimes"}, "Auto"),
        (GANGPLACEMENTS, GANG | {"size": 0}, "spec.size"),
        (GANGPLACEMENTS, {"jobKind": "Job"}, "spec.jobName"),
        (REMEDIATIONS, {"node": "n1"}, "spec.cause"),
        (REMEDIATIONS, EPISODE | {"cancel": "maybe"}, "spec.cancel"),
        (TRAININGPOLICIES, {"spares": 65}, "spec.spares"),
        (TRAININGPOLICIES, {"checkpoint": {"graceSeconds": -1}}, "spec.checkpoint.graceSeconds"),
        (TRAININGPOLICIES, {"elastic": {"maxRestarts": 5000}}, "spec.elastic.maxRestarts"),
        (TRAININGPOLICIES, {"selector": {"a": 1}}, "spec.selector"),
        (TRAININGPOLICIES, {"namespaces": [""]}, "spec.namespaces"),
        (TRAININGPOLICIES, [], "spec"),
    ],
)
async def test_nonsense_is_refused_with_the_fields_name(
    client: Client, namespace: str, kind: Kind[Any], spec: Any, said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        await client.create(kind, manifest(kind, namespace, spec), namespace if kind.namespaced else "")


@pytest.mark.parametrize(
    ("kind", "spec", "changed", "said"),
    [
        (GANGPLACEMENTS, GANG, {"size": 3}, "it names the gang"),
        (REMEDIATIONS, EPISODE, {"node": "n2"}, "spec.node can't change"),
        (REMEDIATIONS, EPISODE, {"cause": "xid/48"}, "spec.cause can't change"),
        (REMEDIATIONS, EPISODE, {"bootId": "later"}, "spec.bootId can't change"),
        (REMEDIATIONS, EPISODE | {"cancel": True}, {"cancel": False}, "a cancelled episode stays cancelled"),
    ],
)
async def test_what_an_object_is_about_can_not_change(
    client: Client, namespace: str, kind: Kind[Any], spec: Any, changed: Any, said: str
) -> None:
    where = namespace if kind.namespaced else ""
    await client.create(kind, manifest(kind, namespace, spec), where)
    with pytest.raises(Invalid, match=said):
        await client.patch(kind, namespace, {"spec": changed}, PatchType.MERGE, where)
    await client.delete(kind, namespace, where)


async def test_a_cancelled_episode_and_a_lifted_quarantine_are_accepted(client: Client, namespace: str) -> None:
    await client.create(REMEDIATIONS, manifest(REMEDIATIONS, namespace, EPISODE))
    cancel = {"spec": {"cancel": True}}
    assert (await client.patch(REMEDIATIONS, namespace, cancel, PatchType.MERGE)).spec.cancel
    quarantine = {"mode": "Quarantined", "reason": "cable replaced on Monday"}
    await client.create(GPUNODES, manifest(GPUNODES, namespace, quarantine))
    lifted = await client.patch(GPUNODES, namespace, {"spec": {"mode": "Auto", "reason": None}}, PatchType.MERGE)
    assert (lifted.spec.mode, lifted.spec.reason) == ("Auto", "")
    await client.delete(REMEDIATIONS, namespace)
    await client.delete(GPUNODES, namespace)


async def test_a_plan_never_goes_back_to_an_older_revision(client: Client, namespace: str) -> None:
    await client.create(GANGPLACEMENTS, manifest(GANGPLACEMENTS, namespace, GANG), namespace)

    async def write(status: dict[str, Any]) -> int:
        body = {"status": status}
        written = await client.patch(GANGPLACEMENTS, namespace, body, PatchType.MERGE, namespace, "status")
        return written.status.revision

    assert await write({"state": "Planned"}) == 0
    assert await write({"revision": 5}) == 5
    with pytest.raises(Invalid, match="a newer plan exists"):
        await write({"revision": 4})
    with pytest.raises(Invalid, match="a newer plan exists"):
        await write({"revision": None})
    with pytest.raises(Invalid, match=r"status\.state"):
        await write({"state": "Dreaming"})


async def test_defaults_are_filled_in_where_people_leave_them_out(client: Client, namespace: str) -> None:
    made = await client.create(TRAININGPOLICIES, manifest(TRAININGPOLICIES, namespace, {}))
    again = await client.create(TRAININGPOLICIES, manifest(TRAININGPOLICIES, f"{namespace}-b", None))
    for policy in (made, again):
        assert policy.spec.spares == 1
        assert policy.spec.checkpoint.grace_seconds == 60
        assert policy.spec.elastic.max_restarts == 100
        await client.delete(TRAININGPOLICIES, policy.metadata.name)


async def test_kubectl_shows_state_at_a_glance_and_explains_fields(
    client: Client, namespace: str, kubeconfig: Path
) -> None:
    await client.create(GPUNODES, manifest(GPUNODES, namespace, {}))
    status = {"status": {"health": "Unhealthy", "score": 0, "verdict": "replace", "reason": "xid/79"}}
    await client.patch(GPUNODES, namespace, status, PatchType.MERGE, "", "status")
    header, row = kubectl(kubeconfig, "get", "gn", namespace).splitlines()
    assert header.split()[:6] == ["NAME", "HEALTH", "SCORE", "VERDICT", "REASON", "MODE"]
    assert row.split()[:6] == [namespace, "Unhealthy", "0", "replace", "xid/79", "Auto"]
    assert "longest wait for a requested checkpoint" in kubectl(
        kubeconfig, "explain", "trainingpolicy.spec.checkpoint.graceSeconds"
    )
    await client.delete(GPUNODES, namespace)


def kubectl(kubeconfig: Path, *arguments: str) -> str:
    command = [program("kubectl"), f"--kubeconfig={kubeconfig}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
