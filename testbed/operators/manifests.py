"""What a controller's own module says is to be installed, with its Services led to where it runs."""

import base64
import http.client
import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.api import Api
from testbed.build import program
from testbed.errors import TestbedError
from testbed.operators.catalogue import Operator
from testbed.say import silent
from testbed.state import State
from testbed.toolchain import MODULES, find_go

Object = dict[str, Any]

CERTIFICATES: Final = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - where controller-runtime looks, in a /tmp of its own
_NOT_RUN: Final = ("Deployment",)  # its program is a process of this machine
_PATIENCE_S: Final = 60.0


def folder(operator: Operator) -> Path:
    """The module's folder, fetched if it is not on this machine.

    Raises:
        TestbedError: it cannot be fetched.
    """
    argv: list[str | Path] = [find_go(silent), "mod", "download", "-json", operator.module]
    done = subprocess.run(argv, cwd=MODULES / operator.name, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError(f"{operator.module} could not be fetched: {done.stdout.strip() or done.stderr.strip()}")
    return Path(json.loads(done.stdout)["Dir"])


def read(operator: Operator, bases: Iterable[str], scratch: Path) -> list[Object]:
    """Every object that these kustomizations of the operator's module give.

    Raises:
        TestbedError: they are not as expected.
    """
    source = scratch / "source"
    source.unlink(missing_ok=True)
    source.symlink_to(folder(operator))
    wanted: Object = {"resources": [f"source/{base}" for base in bases]}
    if operator.namespace:
        wanted["namespace"] = operator.namespace
    (scratch / "kustomization.yaml").write_text(json.dumps(wanted))
    text = _kubectl(["kustomize", str(scratch)])
    return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]


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
        if one["kind"] == "Service":
            one["spec"].pop("selector", None)
            yield _endpoints(one, address)
        yield one


def _overlay(namespace: str, secret: tuple[str, str] | None) -> Iterator[Object]:
    """What the overlay above the bases would add."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    if secret:
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": secret[1]}}


def _endpoints(service: Object, address: str) -> Object:
    meta, ports = service["metadata"], service["spec"]["ports"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": {"kubernetes.io/service-name": meta["name"]},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": p.get("name", ""), "port": p["targetPort"], "protocol": "TCP"} for p in ports],
    }


def apply(state: State, objects: Iterable[Object]) -> None:
    """Create or update the objects, and wait until the API server serves new kinds.

    Raises:
        TestbedError: the API server refuses one.
    """
    everything = list(objects)
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": everything})
    config = f"--kubeconfig={state.folder / 'kubeconfig'}"
    _kubectl([config, "apply", "--server-side", "--force-conflicts", "-f", "-"], body)
    kinds = [one["metadata"]["name"] for one in everything if one["kind"] == "CustomResourceDefinition"]
    if kinds:
        _kubectl([config, "wait", "--for=condition=Established", f"--timeout={_PATIENCE_S:.0f}s", "crd", *kinds])


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


def _kubectl(arguments: list[str], body: str | None = None) -> str:
    done = subprocess.run([program("kubectl"), *arguments], input=body, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError(f"kubectl {' '.join(arguments[:4])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout
