import base64
import datetime
import io

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from rich.console import Console
from scenes import NOW, healthy_node, node, pod, sick_node

from outrider.api import names
from outrider.api.admission import ClientConfig, MutatingWebhookConfiguration, Webhook
from outrider.api.coordination import Lease, LeaseSpec
from outrider.api.core import NamedReference, Pod, PodStatus, StatusCondition
from outrider.api.meta import ObjectMeta
from outrider.api.times import rfc3339
from outrider.cli.checks import Check, healthy, judge
from outrider.cli.evidence import LEASE_NAMES, OUR_KINDS, Answer, Evidence, Trial
from outrider.cli.resources import ConfigMap
from outrider.cli.tables import check_lines
from outrider.kube.client import Page

replace = msgspec.structs.replace
GPU_LABELS = {"nvidia.com/gpu.present": "true"}


def bundle(days: float) -> str:
    """A CA certificate that ends in so many days, as caBundle."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.fromtimestamp(NOW, datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    from cryptography.hazmat.primitives.serialization import Encoding

    return base64.b64encode(certificate.public_bytes(Encoding.PEM)).decode()


def configuration(ca_bundle: str) -> Answer[MutatingWebhookConfiguration]:
    return Answer(MutatingWebhookConfiguration(webhooks=[Webhook(client_config=ClientConfig(ca_bundle=ca_bundle))]))


def lease(age: float = 1.0) -> Answer[Lease]:
    spec = LeaseSpec(holder_identity="someone", lease_duration_seconds=15, renew_time=rfc3339(NOW - age))
    return Answer(Lease(spec=spec))


def component(name: str) -> Pod:
    ready = StatusCondition(type="Ready", status="True")
    labels = {"app.kubernetes.io/component": name}
    return Pod(metadata=ObjectMeta(name=name, labels=labels), status=PodStatus(conditions=[ready]))


def page(*items: object) -> Answer[Page[object]]:
    return Answer(Page(list(items), "1"))


def well(**changes: object) -> Evidence:
    """Evidence of a cluster where all is well."""
    whole: dict[str, object] = {
        "now": NOW,
        "release_namespace": "outrider-system",
        "kinds": {kind.plural: page() for kind in OUR_KINDS},
        "configuration": configuration(bundle(300)),
        "trial": Answer(Trial("team", changed=True)),
        "leases": {name: lease() for name in LEASE_NAMES},
        "component_pods": page(component("scheduler"), component("remediation")),
        "nodes": page(node("gpu-0", labels=GPU_LABELS)),
        "gpu_nodes": page(healthy_node("gpu-0")),
        "job_pods": page(),
        "remediation_config": Answer(ConfigMap(data={"config.yaml": "mode: enforce"})),
    }
    return Evidence(**(whole | changes))  # type: ignore[arg-type]


def failed(evidence: Evidence) -> dict[str, Check]:
    return {f"{check.category}/{check.name}": check for check in judge(evidence) if check.ok is False}


def test_a_cluster_where_all_is_well_passes_every_check():
    checks = judge(well())
    assert [check for check in checks if not check.ok] == []
    assert healthy(checks)


GATED = replace(pod(0, "a"), spec=replace(pod(0, "a").spec, scheduling_gates=[NamedReference(name=names.GANG_GATE)]))
STALE_LEASES = {name: lease(60) for name in LEASE_NAMES}
FAULTS = {
    "resources/gpunodes": {"kinds": {"gpunodes": Answer(problem="not found")}},
    "webhook/configuration": {"configuration": Answer(problem="not found")},
    "webhook/certificate": {"configuration": configuration("")},
    "webhook/answers": {"trial": Answer(Trial("team", changed=False))},
    "scheduler/pods": {"component_pods": page(component("remediation"))},
    "scheduler/kube-scheduler leads": {"leases": STALE_LEASES},
    "scheduler/planner leads": {"leases": STALE_LEASES},
    "remediation/controller leads": {"leases": STALE_LEASES},
    "remediation/pods": {"component_pods": page(component("scheduler"))},
    "agents/report": {"gpu_nodes": page()},
    "gates/lifted": {"leases": STALE_LEASES, "job_pods": page(GATED)},
}


@pytest.mark.parametrize(("name", "changes"), FAULTS.items(), ids=FAULTS.keys())
def test_each_fault_fails_its_check_with_a_hint(name, changes):
    found = failed(well(**changes))
    assert name in found
    assert found[name].hint


def test_a_wrong_release_namespace_is_suggested_where_no_pod_is_found():
    found = failed(well(component_pods=page(), release_namespace="elsewhere"))["remediation/pods"]
    assert found.detail == "no pod in namespace elsewhere"
    assert "--release-namespace" in found.hint


def test_one_fault_fails_no_other_check():
    assert list(failed(well(trial=Answer(Trial("team", changed=False))))) == ["webhook/answers"]


def test_one_scheduler_alone_needs_no_lease_but_two_do():
    leases = {name: lease() for name in LEASE_NAMES} | {"outrider-scheduler": Answer(problem="not found")}
    one, other = component("scheduler"), component("remediation")
    assert failed(well(leases=leases, component_pods=page(one, other))) == {}
    assert list(failed(well(leases=leases, component_pods=page(one, one, other)))) == ["scheduler/kube-scheduler leads"]


@pytest.mark.parametrize("days", [-1, 0.5, 2.9])
def test_a_certificate_that_ends_soon_fails(days):
    assert "was not renewed" in failed(well(configuration=configuration(bundle(days))))["webhook/certificate"].detail


@pytest.mark.parametrize("garbage", ["!!!", "AAAA", base64.b64encode(b"\xff\xfe").decode()])
def test_a_bundle_that_is_no_certificate_fails(garbage):
    found = failed(well(configuration=configuration(garbage)))
    assert found["webhook/certificate"].detail == "caBundle is no certificate"


def test_a_silent_agent_is_named_and_a_simulated_node_needs_none():
    simulated = node("kwok-0", labels=GPU_LABELS, annotations={"kwok.x-k8s.io/node": "fake"})
    nodes = page(node("gpu-0", labels=GPU_LABELS), node("gpu-1", labels=GPU_LABELS), simulated)
    old = sick_node("gpu-1")
    old = replace(old, status=replace(old.status, observed_at=rfc3339(NOW - 600)))
    found = failed(well(nodes=nodes, gpu_nodes=page(healthy_node("gpu-0"), old)))
    assert found["agents/report"].detail == "1 of 2 GPU nodes report freshly; silent: gpu-1"


def test_what_could_not_be_asked_is_shown_and_fails_nothing():
    checks = judge(well(job_pods=Answer(problem="forbidden"), remediation_config=Answer(problem="forbidden")))
    assert [check.name for check in checks if check.ok is None] == ["mode", "lifted"]
    assert healthy(checks)


@pytest.mark.parametrize(
    ("pods", "words"),
    [([GATED], "1 pod waits for its gang's plan"), ([GATED, GATED], "2 pods wait for their gangs' plans")],
)
def test_waiting_pods_are_counted_in_plain_words(pods, words):
    (gates,) = [check for check in judge(well(job_pods=page(*pods))) if check.name == "lifted"]
    assert gates.detail == words


def test_the_lines_show_marks_hints_and_the_result():
    console = Console(width=250, record=True, file=io.StringIO())
    console.print(check_lines(judge(well(trial=Answer(Trial("team", changed=False))))))
    text = console.export_text()
    assert "✗ webhook: answers: a trial pod in team came back unchanged" in text
    assert "kubectl get pods -n outrider-system -l app.kubernetes.io/component=webhook" in text
    assert "Result: 1 of" in text
