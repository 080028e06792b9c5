"""Record what each controller really makes of a job: `python -m testbed.operators.record` writes tests/workloads/pods.

One file per job: its owners from the top down, its pods once all run, and the names of those that exist while none can
be scheduled: where these are fewer, the controller makes its pods in stages.
"""

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from testbed import cluster, control_plane, operators
from testbed.api import Api
from testbed.operators.catalogue import CATALOGUE
from testbed.operators.jobs import EXAMPLES, Example, Object, gated
from testbed.say import step, to_stderr

FOLDER: Final = Path(__file__).parents[2] / "tests" / "workloads" / "pods"
_NODES: Final = 32
_NAMESPACE: Final = "training"
_PODS: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_PATIENCE_S: Final = 60.0
_SETTLED_S: Final = 3.0


def main() -> None:
    """Record all jobs, or those of the kinds that are named."""
    parser = argparse.ArgumentParser("python -m testbed.operators.record", description=__doc__)
    parser.add_argument("--name", default="record", help="name of the testbed")
    parser.add_argument("kinds", nargs="*", help="kinds to record (default: all)")
    args = parser.parse_args()
    examples = [one for one in EXAMPLES if not args.kinds or one.kind in args.kinds]
    with cluster.temporary(args.name, kwok_nodes=_NODES) as state:
        needed = {name for one in examples for name in one.operators}
        operators.start(state, *(one.name for one in CATALOGUE if one.name in needed), say=to_stderr)
        with contextlib.closing(control_plane.admin(state)) as api:
            api.ensure("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
            _wait(lambda: api.call("GET", f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/default")[0] == 200)
            for example in examples:
                with step(to_stderr, f"{example.kind} {example.variant}", "recorded"):
                    _write(example, record(api, example))


def record(api: Api, example: Example) -> Object:
    """Owners, pods and the pods of the first stage of a job. Raises TimeoutError, TestbedError."""
    _create(api, gated(example, "testbed.outrider.dev/never"))
    time.sleep(_SETTLED_S)
    first = sorted(pod["metadata"]["name"] for pod in _pods(api))
    _delete(api, example)
    _create(api, example)
    _wait(lambda: len(_running(api)) == example.pods)
    time.sleep(_SETTLED_S)  # whether more come
    pods = sorted(_pods(api), key=lambda pod: str(pod["metadata"]["name"]))
    recorded = {
        "owners": list(map(_trimmed, _owners(api, pods))),
        "pods": [_trimmed({"apiVersion": "v1", "kind": "Pod", **pod}) for pod in pods],
        "first": first,
    }
    _delete(api, example)
    return recorded


def _create(api: Api, example: Example) -> None:
    api.ensure(_collection(example.body), example.body)


def _delete(api: Api, example: Example) -> None:
    path = f"{_collection(example.body)}/{example.name}"
    api.call("DELETE", path, {"propagationPolicy": "Background"})
    _wait(lambda: api.call("GET", path)[0] == 404 and not _pods(api))


def _pods(api: Api) -> list[Object]:
    items: list[Object] = api.get(_PODS)["items"]
    return items


def _running(api: Api) -> list[Object]:
    return [pod for pod in _pods(api) if pod["status"].get("phase") == "Running"]


def _owners(api: Api, pods: Iterable[Object]) -> list[Object]:
    """The pods' owners and theirs, those on top first."""
    found: dict[str, Object] = {}
    level: list[Object] = list(pods)
    while level:
        wanted = {
            reference["uid"]: reference
            for one in level
            for reference in one["metadata"].get("ownerReferences", [])
            if reference.get("controller") and reference["uid"] not in found and reference["kind"] != "Pod"
        }
        level = [api.get(f"{_collection(ref)}/{ref['name']}") for ref in wanted.values()]
        found |= {one["metadata"]["uid"]: one for one in level}
    return sorted(found.values(), key=lambda one: (_depth(one, found), "ownerReferences" in one["metadata"]))


def _depth(one: Object, found: Mapping[str, Object]) -> int:
    above = [found[ref["uid"]] for ref in one["metadata"].get("ownerReferences", []) if ref["uid"] in found]
    return 1 + max((_depth(each, found) for each in above), default=0)


def _collection(one: Object) -> str:
    version = one["apiVersion"]
    root = f"apis/{version}" if "/" in version else f"api/{version}"
    return f"/{root}/namespaces/{_NAMESPACE}/{one['kind'].lower()}s"


def _trimmed(one: Object) -> Object:
    one["metadata"].pop("managedFields", None)
    return one


def _write(example: Example, recorded: Object) -> None:
    file = FOLDER / example.kind / f"{example.variant}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(recorded, indent=1) + "\n")


def _wait(done: Callable[[], Any]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.1)


if __name__ == "__main__":
    main()
