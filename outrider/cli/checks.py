"""`outrider check`: judges the evidence. Each failed check says what to do. Pure."""

import base64
import binascii
import ssl
from collections.abc import Iterator
from typing import Final

import msgspec
import yaml

from outrider.api import names
from outrider.api.coordination import Lease
from outrider.api.core import Node, Pod
from outrider.api.gpunode import GPUNode
from outrider.api.times import parse_rfc3339
from outrider.cli.evidence import Evidence
from outrider.cli.resources import COMPONENT_LABEL
from outrider.cli.status import age_seconds
from outrider.workloads import GPU, gated

_GPU_LABEL: Final = "nvidia.com/gpu.present"  # set by NVIDIA's GPU feature discovery
_SIMULATED: Final = "kwok.x-k8s.io/node"  # annotation of KWOK's nodes: no kubelet, so no agent
_FRESH_SECONDS: Final = 60.0
_EXPIRES_SOON_SECONDS: Final = 3 * 86400.0
_LEASE_SLACK: Final = 2.0  # of the lease's own duration, for clocks that differ
_INSTALL: Final = (
    f"install the chart: helm install outrider charts/outrider -n {names.RELEASE_NAMESPACE} --create-namespace"
)


class Check(msgspec.Struct, frozen=True, rename="camel"):
    """One result; ``ok`` null where the check could not be made. ``hint`` is what to do, empty where all is well."""

    category: str
    name: str
    ok: bool | None
    detail: str
    hint: str = ""


def judge(evidence: Evidence) -> list[Check]:
    """Return all checks in the order in which things depend on each other."""
    parts = (_resources, _webhook, _trial, _scheduler, _agents, _remediation, _gates)
    return [check for part in parts for check in part(evidence)]


def healthy(checks: list[Check]) -> bool:
    """True where nothing failed; what could not be checked does not count as failed."""
    return all(check.ok is not False for check in checks)


def _resources(evidence: Evidence) -> Iterator[Check]:
    for plural, answer in evidence.kinds.items():
        found = _count(len(answer.value.items), "object") if answer.value else answer.problem
        invalid = len(answer.value.invalid) if answer.value else 0
        if invalid:
            hint = f"kubectl get {plural} -o yaml; correct or delete them"
            yield Check("resources", plural, False, f"{_count(invalid, 'object')} can't be read", hint)
        else:
            yield Check("resources", plural, answer.value is not None, found, "" if answer.value else _INSTALL)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _webhook(evidence: Evidence) -> Iterator[Check]:
    answer = evidence.configuration
    if answer.value is None:
        yield Check("webhook", "configuration", False, answer.problem, _INSTALL)
        return
    bundles = [webhook.client_config.ca_bundle for webhook in answer.value.webhooks]
    yield Check("webhook", "configuration", True, _count(len(bundles), "webhook"))
    log = f"kubectl logs -n {evidence.release_namespace} deploy/outrider-webhook"
    if not bundles or not all(bundles):
        yield Check("webhook", "certificate", False, "the webhook has written no caBundle yet", log)
        return
    yield _certificate(min(_expiry(bundle) for bundle in bundles), evidence.now, log)


def _certificate(expiry: float, now: float, hint: str) -> Check:
    if expiry == 0.0:
        return Check("webhook", "certificate", False, "caBundle is no certificate", hint)
    days = (expiry - now) / 86400
    if expiry - now < _EXPIRES_SOON_SECONDS:
        return Check("webhook", "certificate", False, f"the CA ends in {days:.1f} days and was not renewed", hint)
    return Check("webhook", "certificate", True, f"the CA is valid for {days:.0f} days")


def _expiry(bundle: str) -> float:
    """Return when the first certificate of a caBundle ends, in seconds since 1970; 0 where it is none."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=base64.b64decode(bundle).decode("ascii"))
        ends = [ssl.cert_time_to_seconds(str(one["notAfter"])) for one in context.get_ca_certs()]
    except (ssl.SSLError, ValueError, binascii.Error):
        return 0.0
    return float(min(ends, default=0))


def _trial(evidence: Evidence) -> Iterator[Check]:
    trial = evidence.trial.value
    if trial is None:
        hint = "try again with rights to create pods in an enabled namespace"
        yield Check("webhook", "answers", None, f"could not be tried: {evidence.trial.problem}", hint)
    elif not trial.namespace:
        hint = f"kubectl label namespace NAME {names.ENABLED_LABEL}=true"
        yield Check("webhook", "answers", None, "no namespace is switched on yet, so nothing was tried", hint)
    elif trial.changed:
        yield Check("webhook", "answers", True, f"a trial pod in {trial.namespace} was admitted through it")
    else:
        hint = f"kubectl get pods -n {evidence.release_namespace} -l {COMPONENT_LABEL}=webhook"
        yield Check("webhook", "answers", False, f"a trial pod in {trial.namespace} came back unchanged", hint)


def _scheduler(evidence: Evidence) -> Iterator[Check]:
    yield _running(evidence, "scheduler")
    if evidence.leases[names.SCHEDULER_LEASE].value is None and len(_pods_of(evidence, "scheduler")) == 1:
        yield Check("scheduler", "kube-scheduler leads", True, "its only replica needs no lease")
    else:
        yield _lease(evidence, names.SCHEDULER_LEASE, "scheduler", "kube-scheduler leads")
    yield _lease(evidence, names.PLANNER_LEASE, "scheduler", "planner leads")


def _running(evidence: Evidence, component: str) -> Check:
    pods = evidence.component_pods
    if pods.value is None:
        return Check(component, "pods", None, pods.problem, "try again with rights to list pods there")
    ours = _pods_of(evidence, component)
    ready = sum(_ready(pod) for pod in ours)
    if not ours:
        found = f"no pod in namespace {evidence.release_namespace}"
        return Check(component, "pods", False, found, "is Outrider installed elsewhere? Name it: --release-namespace")
    hint = f"kubectl describe pods -n {evidence.release_namespace} -l {COMPONENT_LABEL}={component}"
    return Check(component, "pods", ready > 0, f"{ready} of {len(ours)} ready", "" if ready else hint)


def _pods_of(evidence: Evidence, component: str) -> list[Pod]:
    pods = evidence.component_pods.value.items if evidence.component_pods.value else []
    return [pod for pod in pods if pod.metadata.labels.get(COMPONENT_LABEL) == component]


def _ready(pod: Pod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


def _lease(evidence: Evidence, lease: str, component: str, name: str) -> Check:
    hint = f"kubectl get pods -n {evidence.release_namespace} -l {COMPONENT_LABEL}={component}"
    answer = evidence.leases[lease]
    if answer.value is None:
        return Check(component, name, False, answer.problem, hint)
    if not held(answer.value, evidence.now):
        return Check(component, name, False, f"nobody holds the lease {lease}", hint)
    return Check(component, name, True, answer.value.spec.holder_identity)


def held(lease: Lease, now: float) -> bool:
    """Return whether somebody holds the lease at ``now`` (seconds since 1970)."""
    spec = lease.spec
    try:
        age = now - parse_rfc3339(spec.renew_time or "")
    except ValueError:
        return False
    return bool(spec.holder_identity) and age < spec.lease_duration_seconds * _LEASE_SLACK


def _agents(evidence: Evidence) -> Iterator[Check]:
    if evidence.nodes.value is None or evidence.gpu_nodes.value is None:
        problem = evidence.nodes.problem or evidence.gpu_nodes.problem
        yield Check("agents", "report", None, problem, "try again with rights to list nodes and gpunodes")
        return
    reports = {node.metadata.name: node for node in evidence.gpu_nodes.value.items}
    expected = sorted(node.metadata.name for node in evidence.nodes.value.items if _has_gpus(node))
    silent = [name for name in expected if not _fresh(reports.get(name), evidence.now)]
    if not expected:
        yield Check("agents", "report", None, f"no node has {GPU} or the label {_GPU_LABEL}=true")
        return
    hint = f"kubectl get pods -n {evidence.release_namespace} -l {COMPONENT_LABEL}=node-agent -o wide"
    detail = f"{len(expected) - len(silent)} of {len(expected)} GPU nodes report freshly"
    missing = f"; silent: {', '.join(silent[:5])}" if silent else ""
    yield Check("agents", "report", not silent, detail + missing, hint if silent else "")


def _has_gpus(node: Node) -> bool:
    marked = node.metadata.labels.get(_GPU_LABEL) == "true" or GPU in node.status.allocatable
    return marked and _SIMULATED not in node.metadata.annotations


def _fresh(gpu_node: GPUNode | None, now: float) -> bool:
    age = age_seconds(gpu_node, now) if gpu_node else None
    return age is not None and age < _FRESH_SECONDS


def _remediation(evidence: Evidence) -> Iterator[Check]:
    yield _running(evidence, "remediation")
    yield _lease(evidence, names.REMEDIATION_LEASE, "remediation", "controller leads")
    answer = evidence.remediation_config
    if answer.value is None:
        yield Check("remediation", "mode", None, answer.problem, "try again with rights to read its ConfigMap")
        return
    mode = _mode(answer.value.data.get("config.yaml", ""))
    words = {"observe": "records episodes, changes nothing", "dryRun": "says in events what it would do"}
    yield Check("remediation", "mode", True, f"{mode}: {words.get(mode, 'acts')}")


def _mode(text: str) -> str:
    try:
        config = yaml.safe_load(text) or {}
    except yaml.YAMLError:
        return "unreadable"
    return str(config.get("mode", "observe")) if isinstance(config, dict) else "unreadable"


def _gates(evidence: Evidence) -> Iterator[Check]:
    pods = evidence.job_pods
    if pods.value is None:
        yield Check("gates", "lifted", None, pods.problem, "try again with rights to list pods")
        return
    waiting = [pod.key for pod in pods.value.items if gated(pod)]
    lease = evidence.leases[names.PLANNER_LEASE].value
    planner = lease is not None and held(lease, evidence.now)
    if waiting and not planner:
        hint = "bring the planner back, or free them by hand: outrider ungate --all --dry-run"
        yield Check("gates", "lifted", False, f"{_waiting(waiting)} for a planner that is absent", hint)
    else:
        gangs = "its gang's plan" if len(waiting) == 1 else "their gangs' plans"
        yield Check("gates", "lifted", True, f"{_waiting(waiting)} for {gangs}")


def _waiting(pods: list[str]) -> str:
    return f"{_count(len(pods), 'pod')} {'waits' if len(pods) == 1 else 'wait'}"
