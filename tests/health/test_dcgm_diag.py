"""Results of dcgmi diag, in the documents of both generations of DCGM."""

import json

import pytest
from evidence import CATALOGUE
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.gpunode import Verdict
from outrider.health.dcgm_diag import NO_RESULT, Complaint, read_diagnosis


def new(*tests: dict, **more) -> bytes:
    """A document of DCGM 4 with two GPUs."""
    entities = [{"entity_id": gpu, "device_id": "2330", "serial_num": f"S{gpu}"} for gpu in (0, 1)]
    document = {
        "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": list(tests)}]},
        "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": entities}],
        "metadata": {"Driver Version Detected": "580.82.09", "version": "4.2.3"},
    }
    return json.dumps(document | more).encode()


def old(*tests: dict, **more) -> bytes:
    """A document of DCGM 3."""
    root = {"test_categories": [{"category": "Hardware", "tests": list(tests)}], "version": "3.3.8"}
    serials = {"GPU Device Serials": {"0": "S0", "1": "S1"}}
    return json.dumps({"DCGM GPU Diagnostic": root | serials} | more).encode()


def entity(gpu: int, status: str, *warnings: object, group: str = "GPU") -> dict:
    found = {"entity_group": group, "entity_group_id": 1, "entity_id": gpu, "status": status}
    return found | ({"warnings": list(warnings)} if warnings else {})


def error(number: int | None, severity: object = None, text: str = "words") -> dict:
    return {"error_category": 1, "error_id": number, "error_severity": severity, "warning": text}


def named(name: str, *results: dict, summary: str | None = None) -> dict:
    found: dict = {"name": name, "results": list(results)}
    return found | ({"test_summary": {"status": summary}} if summary else {})


@pytest.mark.parametrize(
    "document",
    [
        new(named("memory", entity(0, "Pass"), entity(1, "Pass"), summary="Pass")),
        old(named("GPU Memory", {"gpu_ids": "0,1", "status": "PASS"})),
        old(named("GPU Memory", {"gpu_id": "0", "status": "Pass"}, {"gpu_id": 1, "status": "PASS"})),
        b"Warning: something\n" + new(named("memory", entity(0, "Pass"), entity(1, "Pass"))) + b"\nbye\n",
    ],
)
def test_a_pass_in_either_document_names_the_gpus(document):
    diagnosis = read_diagnosis(document)
    assert (diagnosis.passed, diagnosis.failed, diagnosis.problem) == ({0, 1}, False, "")
    assert diagnosis.serials == {0: "S0", 1: "S1"}
    assert diagnosis.version in ("4.2.3", "3.3.8")
    assert diagnosis.complaints == []


@pytest.mark.parametrize(
    ("number", "severity", "code", "verdict"),
    [
        (999, 0, "dcgm/diag-unknown", Verdict.WATCH),
        (999, 1, "dcgm/diag-monitor", Verdict.WATCH),
        (999, 2, "dcgm/diag-isolate", Verdict.RESET),
        (999, 3, "dcgm/diag-unknown", Verdict.WATCH),
        (999, 4, "dcgm/diag-triage", Verdict.NO_NEW_WORK),
        (999, 5, "dcgm/diag-config", Verdict.WATCH),
        (999, 6, "dcgm/diag-reset", Verdict.RESET),
        (999, 7, "dcgm/diag-unknown", Verdict.WATCH),
        (999, -1, "dcgm/diag-unknown", Verdict.WATCH),
        (999, "ISOLATE", "dcgm/diag-isolate", Verdict.RESET),
        (999, "SHRUG", "dcgm/diag-unknown", Verdict.WATCH),
        (999, None, "dcgm/diag-fail", Verdict.NO_NEW_WORK),
        (None, None, "dcgm/diag-fail", Verdict.NO_NEW_WORK),
        (3, None, "dcgm/diag-isolate", Verdict.RESET),
        (4, None, "dcgm/diag-isolate", Verdict.RESET),
        (6, None, "dcgm/diag-reset", Verdict.RESET),
        (14, None, "dcgm/diag-triage", Verdict.NO_NEW_WORK),
        (29, None, "dcgm/diag-config", Verdict.WATCH),
        (80, None, "dcgm/diag-reset", Verdict.RESET),
        (81, None, "dcgm/diag-isolate", Verdict.RESET),
        (85, None, "dcgm/diag-reset", Verdict.RESET),
        (101, None, "dcgm/diag-triage", Verdict.NO_NEW_WORK),
        (118, None, "dcgm/diag-isolate", Verdict.RESET),
        (120, None, "dcgm/diag-isolate", Verdict.RESET),
        (122, 2, "dcgm/diag-triage", Verdict.NO_NEW_WORK),
        (125, None, "dcgm/diag-reset", Verdict.RESET),
        (126, None, "dcgm/diag-isolate", Verdict.RESET),
        (131, None, "dcgm/diag-monitor", Verdict.WATCH),
    ],
)
def test_a_failure_is_as_grave_as_its_error(number, severity, code, verdict):
    diagnosis = read_diagnosis(
        new(named("memory", entity(0, "Fail", error(number, severity)), entity(1, "Pass"), summary="Fail"))
    )
    assert diagnosis.complaints == [Complaint(code=code, gpu=0, line="memory: fail: words")]
    assert CATALOGUE.of(code).verdict is verdict
    assert code in CATALOGUE
    assert 1 in diagnosis.passed


def test_a_healthy_node_without_persistence_mode_fails_nothing():
    said = entity(0, "Fail", error(29, 5, "Persistence mode for GPU 0 is disabled."))
    document = new(named("software", said, summary="Fail"), named("memory", entity(0, "Pass")))
    diagnosis = read_diagnosis(document)
    assert (diagnosis.failed, diagnosis.passed) == (False, {0})


@pytest.mark.parametrize(
    ("result", "codes", "passed"),
    [
        ({"gpu_ids": "0,1", "status": "FAIL", "warnings": ["page retirement"]}, ["dcgm/diag-fail"] * 2, set()),
        ({"gpu_ids": "0", "status": "FAIL", "warnings": "a text"}, ["dcgm/diag-fail"], set()),
        ({"gpu_ids": "0", "status": "FAIL"}, ["dcgm/diag-fail"], set()),
        ({"gpu_ids": "0", "status": "WARN", "warnings": ["slow"]}, ["dcgm/diag-warn"], set()),
        ({"gpu_ids": "0", "status": "SKIP"}, [], set()),
        ({"gpu_ids": "0", "status": "SKIPPED"}, [], set()),
        ({"gpu_ids": "0", "status": "Not Run"}, [], set()),
        ({"gpu_ids": "0", "status": "EXPLODED"}, ["dcgm/diag-unknown"], set()),
        ({"gpu_ids": "0", "status": "PASS", "warnings": ["nothing grave"]}, [], {0}),
        ({"status": "FAIL"}, ["dcgm/diag-fail"], set()),
    ],
)
def test_every_status_of_the_older_document_is_read(result, codes, passed):
    diagnosis = read_diagnosis(old(named("Memory", result)))
    assert [complaint.code for complaint in diagnosis.complaints] == codes
    assert diagnosis.passed == passed


def test_a_gpu_that_fails_one_test_has_not_passed():
    tests = named("memory", entity(0, "Pass")), named("pcie", entity(0, "Fail", error(30, 4)))
    assert read_diagnosis(new(*tests)).passed == set()


def test_a_failure_that_only_the_summary_tells_concerns_the_node():
    [complaint] = read_diagnosis(new(named("software", entity(0, "Pass"), summary="Fail"))).complaints
    assert (complaint.code, complaint.gpu) == ("dcgm/diag-fail", None)


def test_a_part_that_is_no_gpu_concerns_the_node():
    [complaint] = read_diagnosis(new(named("cpu", entity(3, "Fail", error(1, 4), group="CPU")))).complaints
    assert complaint.gpu is None


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (b"", "empty"),
        (b"Error: unable to connect to nv-hostengine", "unable to connect"),
        (new(named("memory", entity(0, "Pass")))[:-40], "no whole JSON"),
        (b"{}", "none of the keys"),
        (b'{"DCGM Diagnostic": 3}', "none of the keys"),
        (b'{"runtime_error": "host engine is busy"}', "host engine is busy"),
        (new(runtime_error="a test was aborted"), "aborted"),
        (new(), "no test"),
        (b"{" * 100_000 + b"}", "no whole JSON"),
    ],
)
def test_a_run_without_result_says_why_and_nothing_about_the_hardware(output, words):
    diagnosis = read_diagnosis(output)
    assert words in diagnosis.problem
    assert not diagnosis.failed
    assert diagnosis.passed == set()


def test_numbers_that_json_has_not_are_no_reason_to_doubt_the_rest():
    document = new(named("memory", entity(0, "Pass")), more=[float("nan"), float("inf")]).replace(
        b"Infinity", b"1e+9999"
    )
    assert read_diagnosis(document).passed == {0}


def test_what_was_found_before_a_run_broke_off_is_kept():
    found = new(named("memory", entity(0, "Fail", error(4, 2))), runtime_error="aborted")
    assert read_diagnosis(found).failed
    assert read_diagnosis(found).problem == "aborted"


def test_no_result_has_a_row_that_says_nothing_about_hardware():
    assert CATALOGUE.of(NO_RESULT).verdict is Verdict.WATCH


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
keys = st.sampled_from(
    [
        "test_categories",
        "tests",
        "results",
        "test_summary",
        "status",
        "warnings",
        "warning",
        "error_id",
        "error_severity",
        "gpu_ids",
        "gpu_id",
        "entity_id",
        "entity_group",
        "entity_groups",
        "entities",
        "serial_num",
        "metadata",
        "version",
        "runtime_error",
        "name",
    ]
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=5)),
    max_leaves=20,
)


@given(st.sampled_from(["DCGM Diagnostic", "DCGM GPU Diagnostic"]), values, st.dictionaries(keys, values, max_size=4))
def test_no_document_is_an_error(root, content, more):
    diagnosis = read_diagnosis(json.dumps({root: content} | more).encode())
    assert all(complaint.code in CATALOGUE for complaint in diagnosis.complaints)


@given(st.one_of(st.text(max_size=9), st.sampled_from(["Pass", "Fail", "Warn", "Skip"])), values, values, values)
def test_no_result_of_a_test_is_an_error(status, warnings, gpu, summary):
    result = {"entity_group": "GPU", "entity_id": gpu, "gpu_ids": gpu, "status": status, "warnings": warnings}
    older = {"gpu_ids": gpu, "status": status, "warnings": warnings}
    twice = {"name": summary, "results": [result, older], "test_summary": summary}
    diagnosis = read_diagnosis(new(twice, twice, entity_groups=summary))
    assert all(complaint.code in CATALOGUE for complaint in diagnosis.complaints)
    assert diagnosis.failed or status.lower() != "fail" or diagnosis.complaints


@given(st.binary(max_size=200))
def test_no_bytes_are_an_error(output):
    read_diagnosis(output)
    read_diagnosis(b"{" + output + b"}")
