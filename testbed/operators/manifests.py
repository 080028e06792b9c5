"""What a controller's own module says is to be installed, with its Services led to where it runs."""

import base64
import contextlib
import hashlib
import http.client
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from testbed import control_plane, versions
from testbed.api import Api
from testbed.build import folder as build_folder
from testbed.build import program
from testbed.errors import TestbedError
from testbed.operators.catalogue import Operator
from testbed.paths import cache_dir
from testbed.say import silent
from testbed.state import State
from testbed.toolchain import MODULES, find_go

Object = dict[str, Any]

CERTIFICATES: Final = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - where controller-runtime looks, in a /tmp of its own
_NOT_RUN: Final = ("Deployment",)  # its program is a process of this machine
_PATIENCE_S: Final = 60.0


def _folder(operator: Operator) -> Path:
    """The module's folder, fetched if it is not on this machine.

    Raises:
        TestbedError: it cannot be fetched.
    """
    argv: list[str | Path] = [find_go(silent), "mod", "download", "-json", operator.module]
    done = subprocess.run(argv, cwd=MODULES / operator.name, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError(f"{operator.module} could not be fetched: {done.stdout.strip() or done.stderr.strip()}")
    return Path(json.loads(done.stdout)["Dir"])


def read(operator: Operator, bases: Sequence[str]) -> list[Object]:
    """Every object that these kustomizations of the operator's module give; read once per version of it.

    Raises:
        TestbedError: they are not as expected.
    """
    built = next(build_folder(build) for build in versions.OPERATORS if build.module == operator.name)
    kept = cache_dir() / "operators" / f"{built.name}-{hashlib.sha256(repr(bases).encode()).hexdigest()[:8]}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(_rendered(operator, bases)))
        partial.rename(kept)
    return [_lighter(one) for one in json.loads(kept.read_text())]


def _rendered(operator: Operator, bases: Sequence[str]) -> list[Object]:
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "source").symlink_to(
            _folder(operator)
        )  # kustomize takes a path with github.com/ in it for a URL
        wanted: Object = {"resources": [f"source/{base}" for base in bases]}
        if operator.namespace:
            wanted["namespace"] = operator.namespace
        (Path(scratch) / "kustomization.yaml").write_text(json.dumps(wanted))
        done = subprocess.run([program("kubectl"), "kustomize", scratch], capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError(f"the manifests of {operator.name} cannot be read: {done.stderr.strip()}")
    return [one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one]


def account(objects: Iterable[Object]) -> tuple[str, str]:
    """Namespace and name of the service account that the operator runs under."""
    deployment = next(one for one in objects if one["kind"] == "Deployment")
    return deployment["metadata"]["namespace"], deployment["spec"]["template"]["spec"]["serviceAccountName"]


def certificate_secret(objects: Iterable[Object]) -> tuple[str, str] | None:
    """Namespace and name of the Secret that would be mounted with the webhooks' certificate; None: no webhooks."""
    deployment = next(one for one in objects if one["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    mounts = [mount for container in spec["containers"] for mount in container.get("volumeMounts", [])]
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    for mount in mounts:
        if mount["mountPath"] == CERTIFICATES:
            return deployment["metadata"]["namespace"], volumes[mount["name"]]["secret"]["secretName"]
    return None


def adapted(operator: Operator, objects: Iterable[Object], address: str) -> Iterator[Object]:
    """What is applied: all but what would run in pods, and Services whose endpoint is the process at ``address``."""
    everything = list(objects)
    if operator.namespace:
        yield from _overlay(operator.namespace, certificate_secret(everything))
    for one in everything:
        if one["kind"] in _NOT_RUN or one["metadata"]["name"] in operator.omitted:
            continue
        yield from led_to(one, address) if one["kind"] == "Service" else (one,)


def _lighter(value: Any) -> Any:
    """The object with schemas that take a second, not half a minute: without prose, and pods' specs left open.

    A controller's kinds hold up to six copies of everything that a pod can say, each with rules to be compiled.
    """
    if isinstance(value, list):
        return [_lighter(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "containers" in value.get("properties", ()):
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {key: _lighter(each) for key, each in value.items() if key != "description" or not isinstance(each, str)}


def _overlay(namespace: str, secret: tuple[str, str] | None) -> Iterator[Object]:
    """What the overlay above the bases would add."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    if secret:
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": secret[1]}}


def led_to(service: Object, address: str, port: int = 0) -> Iterator[Object]:
    """The Service without pods and its only endpoint; ``port``: the port there, where the Service names a pod's."""
    service["spec"].pop("selector", None)
    yield service
    meta, ports = service["metadata"], service["spec"]["ports"]
    yield {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": {"kubernetes.io/service-name": meta["name"]},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": p.get("name", ""), "port": port or p["targetPort"], "protocol": "TCP"} for p in ports],
    }


def apply(state: State, objects: Iterable[Object]) -> None:
    """Create or update the objects, as server-side apply does, and wait until the API server serves new kinds.

    Raises:
        TestbedError: the API server refuses one, or does not serve a kind within a minute.
    """
    with contextlib.closing(control_plane.admin(state)) as api:
        for path in [path for path in (_applied(api, one) for one in objects) if path]:
            _await(api, path)


def _await(api: Api, path: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while _patiently(lambda: api.call("GET", f"{path}?limit=1"))[0] != http.client.OK:
        if time.monotonic() > deadline:
            raise TestbedError(f"the API server did not serve {path} within {_PATIENCE_S:.0f} s")
        time.sleep(0.05)


def _applied(api: Api, one: Object) -> str:
    """Apply one object; return the path of the kind that it defines, empty for others."""
    path = f"{_collection(one)}/{one['metadata']['name']}?fieldManager=testbed&force=true"
    status, answer = _patiently(lambda: api.call("PATCH", path, one, "application/apply-patch+yaml"))
    if status not in (http.client.OK, http.client.CREATED):
        raise TestbedError(f"the API server refuses {one['kind']} {one['metadata']['name']}: {answer}")
    if one["kind"] != "CustomResourceDefinition":
        return ""
    spec = one["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"


def _patiently(call: Callable[[], tuple[int, Any]]) -> tuple[int, Any]:
    """Repeat a request that the API server, busy with new kinds, does not answer in time."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return call()
        except OSError:
            if time.monotonic() > deadline:
                raise


def _collection(one: Object) -> str:
    """API path of an object's collection; the kinds that controllers install form their plurals by an s.

    Kustomize gives a namespace to every kind that it does not know.
    """
    version, namespace = one["apiVersion"], one["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespaced = namespace and not one["kind"].startswith("Cluster")
    return f"{root}/namespaces/{namespace}/{one['kind'].lower()}s" if namespaced else f"{root}/{one['kind'].lower()}s"


def token(api: Api, namespace: str, name: str) -> str:
    """A token of a service account, good for a day. Raises TestbedError."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    status, answer = api.call("POST", path, {"spec": {"expirationSeconds": 24 * 3600}})
    if status != http.client.CREATED:
        raise TestbedError(f"no token for {namespace}/{name}: {answer}")
    return str(answer["status"]["token"])


def certificates(api: Api, namespace: str, secret: str) -> dict[str, bytes]:
    """Files of the Secret with the webhooks' certificate; empty until the controller has filled it."""
    data = api.get(f"/api/v1/namespaces/{namespace}/secrets/{secret}").get("data") or {}
    return {file: base64.b64decode(content) for file, content in data.items()}
