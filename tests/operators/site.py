"""Where a job of a real controller runs: what it makes, what we plan, and nodes that fail."""

import http.client
import time
from collections.abc import Callable
from typing import Final, TypeVar

from outrider.api.names import GROUP, JOB_UID_LABEL, SCHEDULER_NAME, VERSION
from outrider.api.times import rfc3339
from testbed.api import Api
from testbed.operators.jobs import Example, Object

T = TypeVar("T")

_PATIENCE_S: Final = 90.0
_GPUS: Final = "nvidia.com/gpu"
_OURS: Final = f"/apis/{GROUP}/{VERSION}"
_PER_LEAF: Final = 16


class Site:
    """One namespace, through the administrator's eyes."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self._made: list[str] = []
        self._sick: list[str] = []

    def submit(self, example: Example) -> None:
        """Create the job."""
        path = self._collection(example.body)
        self.api.ensure(path, example.body)
        self._made.append(f"{path}/{example.name}")

    def pods(self) -> list[Object]:
        """Every pod that is not on its way out."""
        items = self.api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def members(self) -> list[Object]:
        """Pods with GPUs."""
        return [pod for pod in self.pods() if _GPUS in str(pod["spec"]["containers"])]

    def bound(self, count: int) -> list[Object]:
        """The pods with GPUs once there are so many and all run."""

        def all_running() -> list[Object] | None:
            here = self.members()
            return here if len(here) == count and all(pod["status"]["phase"] == "Running" for pod in here) else None

        return self.eventually(all_running, f"{count} running pods with GPUs")

    def placements(self, gangs: int, revision: int = 0) -> list[Object]:
        """The placements once there are so many and each is Placed, at least one in a later revision than that."""

        def all_placed() -> list[Object] | None:
            items = self.any_placements()
            placed = [one for one in items if one.get("status", {}).get("state") == "Placed"]
            newest = max((one["status"]["revision"] for one in placed), default=0)
            return items if len(placed) == len(items) == gangs and newest > revision else None

        return self.eventually(all_placed, f"{gangs} placements that are Placed")

    def any_placements(self) -> list[Object]:
        """Every placement, whatever its state."""
        items: list[Object] = self.api.get(f"{_OURS}/namespaces/{self.namespace}/gangplacements")["items"]
        return items

    def fail(self, node: str) -> None:
        """Say what the agent of a node with a dead GPU says."""
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GPUNode", "metadata": {"name": node}}
        self.api.ensure(f"{_OURS}/gpunodes", body)
        self._sick.append(node)
        status = {"verdict": "replace", "health": "Unhealthy", "score": 0, "reason": "xid/79"}
        changed = {"status": {**status, "observedAt": rfc3339(time.time())}}
        kind = "application/merge-patch+json"
        code, answer = self.api.call("PATCH", f"{_OURS}/gpunodes/{node}/status", changed, kind)
        assert code == http.client.OK, answer

    def evict(self, pod: Object) -> None:
        """Evict a pod as the ladder does before it repairs the node."""
        meta = {"name": pod["metadata"]["name"], "namespace": self.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{meta['name']}/eviction"
        code, answer = self.api.call("POST", path, body)
        assert code == http.client.CREATED, answer

    def settle(self) -> None:
        """Wait until no node has a pod."""
        self.eventually(lambda: not self._placed_anywhere(), "empty nodes")

    def clear(self) -> None:
        """Delete the jobs, and repair the nodes."""
        for path in self._made:
            self.api.call("DELETE", path, {"propagationPolicy": "Background"})
        for node in self._sick:
            self.api.call("DELETE", f"{_OURS}/gpunodes/{node}")

    def eventually(self, look: Callable[[], T | None], what: str) -> T:
        """What ``look`` finds once it finds something; fails with what there is instead."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (found := look()):
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} within {_PATIENCE_S:.0f} s; there are\n{self.told()}")
            time.sleep(0.1)
        return found

    def told(self) -> str:
        """Pods and placements in words."""
        lines = [_words(pod) for pod in self.pods()]
        for one in self.any_placements():
            status = one.get("status", {})
            words = f"{one['metadata']['name']}: size {one['spec']['size']}, {status.get('state')}"
            lines.append(f"{words}, {status.get('message')}, ranks {status.get('ranks')}")
        return "\n".join(lines)

    def _placed_anywhere(self) -> bool:
        selector = "fieldSelector=spec.nodeName%21%3D"
        return bool(self.api.get(f"/api/v1/pods?{selector}")["items"])

    def _collection(self, body: Object) -> str:
        return f"/apis/{body['apiVersion']}/namespaces/{self.namespace}/{body['kind'].lower()}s"


def leaf_of(node: str) -> int:
    """Number of the leaf that a simulated node is under."""
    return int(node.removeprefix("kwok-")) // _PER_LEAF


def _words(pod: Object) -> str:
    spec, labels = pod["spec"], pod["metadata"].get("labels", {})
    gates = [gate["name"] for gate in spec.get("schedulingGates", [])]
    scheduler = "" if spec["schedulerName"] == SCHEDULER_NAME else f", scheduler {spec['schedulerName']}"
    where = spec.get("nodeName", "no node")
    return f"{pod['metadata']['name']}: {where}, gates {gates}{scheduler}, gang {labels.get(JOB_UID_LABEL)}"
