"""What of a controller's own manifests is installed, and how its Services lead to its process."""

from typing import Any

import pytest

from testbed.errors import TestbedError
from testbed.operators import jobs, manifests
from testbed.operators.catalogue import CATALOGUE, operator
from testbed.operators.jobs import EXAMPLES, gated
from testbed.versions import OPERATORS

POD_SPEC = {"type": "object", "properties": {"containers": {"type": "array"}, "nodeName": {"type": "string"}}}


def deployment() -> dict[str, Any]:
    mounted = {"name": "cert", "mountPath": manifests.CERTIFICATES}
    spec = {
        "serviceAccountName": "boss",
        "containers": [{"volumeMounts": [{"name": "other", "mountPath": "/x"}, mounted]}],
        "volumes": [{"name": "other"}, {"name": "cert", "secret": {"secretName": "made-by-itself"}}],
    }
    meta = {"name": "controller", "namespace": "its-own"}
    return {"kind": "Deployment", "metadata": meta, "spec": {"template": {"spec": spec}}}


def service() -> dict[str, Any]:
    ports = [{"port": 443, "targetPort": 9443}, {"name": "metrics", "port": 8080, "targetPort": 8080}]
    return {
        "kind": "Service",
        "metadata": {"name": "webhook", "namespace": "its-own"},
        "spec": {"selector": {"app": "controller"}, "ports": ports},
    }


def test_a_controller_runs_under_its_own_account_with_the_certificate_that_would_be_mounted() -> None:
    assert manifests.account([service(), deployment()]) == ("its-own", "boss")
    assert manifests.certificate_secret([deployment()]) == ("its-own", "made-by-itself")


def test_a_deployment_becomes_a_process_to_which_its_services_lead() -> None:
    installed = list(manifests.adapted(operator("jobset"), [deployment(), service()], "10.210.0.2"))
    led, endpoints = installed
    assert "selector" not in led["spec"]
    assert endpoints["metadata"]["labels"] == {"kubernetes.io/service-name": "webhook"}
    assert endpoints["endpoints"][0]["addresses"] == ["10.210.0.2"]
    assert [(port["name"], port["port"]) for port in endpoints["ports"]] == [("", 9443), ("metrics", 8080)]


def test_a_kind_that_two_controllers_want_is_installed_by_one() -> None:
    crd = {"kind": "CustomResourceDefinition", "metadata": {"name": "mpijobs.kubeflow.org"}}
    assert not list(manifests.adapted(operator("training-operator"), [crd], "10.210.0.2"))
    assert list(manifests.adapted(operator("mpi-operator"), [crd], "10.210.0.2")) == [crd]


def test_schemas_lose_their_prose_and_leave_pods_open_but_keep_what_defaults_a_job() -> None:
    replicas = {"type": "integer", "default": 1, "description": "how many"}
    schema = {"properties": {"replicas": replicas, "description": {"type": "string"}, "spec": POD_SPEC}}
    light = manifests._lighter(schema)
    assert light["properties"]["replicas"] == {"type": "integer", "default": 1}
    assert light["properties"]["description"] == {"type": "string"}, "a field of that name is no prose"
    assert light["properties"]["spec"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def test_every_built_controller_is_in_the_catalogue_and_every_kind_of_it_has_an_example() -> None:
    assert [one.name for one in CATALOGUE] == [build.module for build in OPERATORS]
    assert {name for example in EXAMPLES for name in example.operators} == {one.name for one in CATALOGUE}
    assert len({(example.kind, example.variant) for example in EXAMPLES}) == len(EXAMPLES)


def test_a_gated_example_has_the_gate_in_each_pod_template_and_nowhere_else() -> None:
    body = gated(jobs.mpi_job(), "a/gate").body
    specs = [role["template"]["spec"] for role in body["spec"]["mpiReplicaSpecs"].values()]
    assert all(spec.pop("schedulingGates") == [{"name": "a/gate"}] for spec in specs)
    assert body == jobs.mpi_job().body


def test_a_controller_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(TestbedError, match="no controller is named 'kueue'; there are jobset, lws"):
        operator("kueue")
