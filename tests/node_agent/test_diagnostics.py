"""Active diagnostics: the request, and what comes of a run."""

import json

import pytest
from around import NOW, Around, record

from node_agent.probes.programs import Ran
from node_agent.probes.report import Report, States
from node_agent.readings.diagnostics import no_result, read_request, refusal, result, running
from outrider.api.core import Container, NamedReference, Pod, PodSpec, PodStatus, ResourceRequirements
from outrider.api.gpunode import DiagnosticRequest, DiagnosticState, GPUNode, SubjectKind, Verdict
from outrider.api.meta import ObjectMeta
from outrider.api.names import RUN_DIAGNOSTIC_ANNOTATION
from outrider.health.findings import seen

INVENTORY = [record(0), record(1)]
STARTED = running(DiagnosticRequest(id="a", level=2), NOW)


def asking(text: str) -> GPUNode:
    return GPUNode(metadata=ObjectMeta(name="n", annotations={RUN_DIAGNOSTIC_ANNOTATION: text}))


def document(*results: dict, serials: tuple[str, ...] = ("S0", "S1"), **more) -> bytes:
    root = {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": list(results)}]}]}
    entities = [{"entity_id": gpu, "serial_num": serial} for gpu, serial in enumerate(serials)]
    groups = [{"entity_group": "GPU", "entities": entities}]
    return json.dumps({"DCGM Diagnostic": root, "entity_groups": groups} | more).encode()


def entity(gpu: int, status: str, *errors: dict) -> dict:
    return {"entity_group": "GPU", "entity_id": gpu, "status": status, "warnings": list(errors)}


ISOLATE = {"error_id": 4, "error_severity": 2, "warning": "2 double-bit errors"}


def ended(output: bytes, status: int | None = 0, problem: str = ""):
    return result(STARTED, Ran(status=status, output=output, problem=problem), INVENTORY, NOW)


def test_a_request_is_read():
    assert read_request(asking('{"id": "r-1", "level": 3}')) == DiagnosticRequest(id="r-1", level=3)
    assert read_request(asking('{"id": "r-1"}')).level == 1
    assert read_request(None) is None
    assert read_request(GPUNode(metadata=ObjectMeta(name="n"))) is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "truncated"),
        ("[]", "object"),
        ('{"id": ""}', "id"),
        ('{"id": "x", "level": 5}', "level"),
        ("[" * 10_000, ""),
    ],
)
def test_a_request_that_makes_no_sense_is_an_error_that_names_the_annotation(text, word):
    with pytest.raises(ValueError, match=f"(?s){RUN_DIAGNOSTIC_ANNOTATION}.*{word}"):
        read_request(asking(text))


def pod(phase: str = "Running", **spec) -> Pod:
    return Pod(metadata=ObjectMeta(name="p", namespace="d"), spec=PodSpec(**spec), status=PodStatus(phase=phase))


def gpus(amount: str) -> list[Container]:
    return [Container(name="c", resources=ResourceRequirements(limits={"nvidia.com/gpu": amount}))]


@pytest.mark.parametrize(
    ("level", "pods", "refused"),
    [
        (1, [pod(containers=gpus("8"))], False),
        (2, [], False),
        (2, [pod()], False),
        (2, [pod(containers=gpus("8"))], True),
        (4, [pod("Succeeded", containers=gpus("8"))], False),
        (2, [pod(containers=gpus("a few"))], True),
        (2, [pod(resource_claims=[NamedReference(name="gpu")])], True),
    ],
)
def test_a_level_that_takes_the_gpus_is_refused_while_pods_have_them(level, pods, refused):
    assert bool(refusal(DiagnosticRequest(id="a", level=level), "/usr/bin/dcgmi", pods)) == refused


def test_without_a_program_none_is_run():
    assert "dcgmiPath" in refusal(DiagnosticRequest(id="a"), "", [])


def test_a_failure_names_the_gpu_by_its_serial_and_passes_the_other():
    failed = ended(document(entity(0, "Fail", ISOLATE), entity(1, "Pass"), serials=("S1", "S0")), status=226)
    assert failed.diagnostic.state is DiagnosticState.FAILED
    assert [(one.code, one.subject_id) for one in failed.bad] == [("dcgm/diag-isolate", "GPU-1")]
    assert "2 double-bit errors" in failed.diagnostic.message
    assert failed.passed == {"", "GPU-0"}


def test_without_serials_gpus_are_numbered_as_nvml_does():
    failed = ended(document(entity(1, "Fail", ISOLATE), entity(9, "Fail", ISOLATE), serials=()))
    assert [(one.subject_id, one.line[:12]) for one in failed.bad] == [("GPU-1", "memory: fail"), ("", "DCGM's GPU 9")]


def test_a_pass_says_so():
    passed = ended(document(entity(0, "Pass"), entity(1, "Pass")))
    assert (passed.diagnostic.state, passed.bad) == (DiagnosticState.PASSED, ())
    assert passed.diagnostic.message.startswith("2 GPUs passed")
    assert passed.passed == {"", "GPU-0", "GPU-1"}


@pytest.mark.parametrize(
    "end",
    [
        ended(b""),
        ended(document()),
        ended(document(entity(0, "Skip"), entity(1, "Skip"))),
        ended(document(entity(0, "Pass")), status=None, problem="did not end within 900 s"),
        ended(document(entity(0, "Pass"), runtime_error="aborted")),
        no_result(STARTED, "x" * 5000, NOW),
    ],
)
def test_a_run_without_result_is_neither_pass_nor_fault(end):
    assert end.diagnostic.state is DiagnosticState.NO_RESULT
    assert [one.code for one in end.bad] == ["dcgm/diag-no-result"]
    assert end.passed == frozenset()
    assert len(end.diagnostic.message) <= 1024


def test_what_broke_off_after_a_failure_is_a_failure():
    end = ended(document(entity(0, "Fail", ISOLATE), runtime_error="aborted"), status=None, problem="timed out")
    assert end.diagnostic.state is DiagnosticState.FAILED


def test_a_diagnostic_that_passes_clears_its_own_findings_and_no_links():
    around = Around()
    links = seen("nvlink/inactive", NOW, subject=SubjectKind.GPU, subject_id="GPU-1", source="nvml")
    around.memory.findings.append(links)
    failed = ended(document(entity(0, "Pass"), entity(1, "Fail", ISOLATE)))
    around.take("dcgm-diag", Report(states=States(bad=failed.bad, readable=failed.passed)))
    assert around.judgement().gpus["GPU-1"].verdict is Verdict.RESET
    assert around.judgement().gpus["GPU-0"].score == 100
    passed = ended(document(entity(0, "Pass"), entity(1, "Pass")))
    for seconds in (1, 32):
        around.take("dcgm-diag", Report(states=States(readable=passed.passed)), seconds)
    assert around.codes() == {"nvlink/inactive": "GPU-1"}
