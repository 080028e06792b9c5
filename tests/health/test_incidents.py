import pytest
from evidence import CATALOGUE, GPU_NAMES, NOW, evidences, on_gpu, on_nic, on_node
from hypothesis import given
from hypothesis import strategies as st

from outrider.api.gpunode import Verdict
from outrider.health.families import family
from outrider.health.findings import Evidence, merge
from outrider.health.incidents import Incident
from outrider.health.judge import Judgement, judge


def judged(*findings: Evidence) -> Judgement:
    return judge(merge({}, findings).values(), GPU_NAMES, NOW, CATALOGUE)


def told(*findings: Evidence) -> dict[str, tuple[str, ...]]:
    """Lead of each incident, and what else belongs to it."""
    return {incident.lead: incident.members for incident in judged(*findings).incidents}


@pytest.mark.parametrize(
    ("lead", "others"),
    [
        ("xid/64", ["xid/63", "remap/failure", "remap/pending"]),
        ("xid/95", ["xid/48", "xid/94", "xid/171", "ecc/uncorrected"]),
        ("xid/74", ["nvlink/inactive", "xid/136", "xid/155"]),
        ("xid/79", ["gpu/lost", "kernel/off-bus", "kernel/aer-fatal"]),
        ("xid/119", ["xid/120", "gpu/unreadable"]),
        ("xid/119", ["recovery/1", "xid/154.1"]),
        ("xid/119", ["monitor/blind"]),
        ("kernel/driver-mismatch", ["nvml/mismatch"]),
    ],
)
def test_what_several_codes_and_probes_show_of_one_fault_is_one_incident(lead, others):
    findings = [on_gpu(lead, ago=60), *(on_gpu(code, ago=50) for code in others)]
    (incident,) = judged(*findings).incidents
    assert {incident.lead, *incident.members} == {lead, *others}
    assert incident.since == NOW - 60


def test_the_lead_is_the_gravest_code_and_the_message_names_the_others():
    judgement = judged(on_gpu("remap/pending", ago=90), on_gpu("xid/95", ago=60), on_gpu("xid/48", ago=61))
    (incident,) = judgement.incidents
    assert (incident.lead, incident.members) == ("xid/95", ("remap/pending", "xid/48"))
    assert "(xid/95). The same fault shows as remap/pending, xid/48. Next:" in judgement.message


def test_faults_of_two_gpus_and_two_kinds_of_fault_are_incidents_of_their_own():
    assert len(told(on_gpu("xid/79", "GPU-a"), on_gpu("xid/95", "GPU-b"))) == 2
    assert len(told(on_gpu("xid/79"), on_gpu("xid/95"))) == 2


def test_a_clean_up_belongs_to_the_gravest_fault_just_before_it_on_its_own_gpu():
    assert told(on_gpu("xid/45", ago=59), on_gpu("xid/31", ago=60), on_gpu("xid/95", ago=60)) == {
        "xid/95": ("xid/45",),
        "xid/31": (),
    }


def test_a_clean_up_without_a_fault_on_its_gpu_belongs_to_one_elsewhere_on_the_node():
    assert told(on_gpu("xid/45", "GPU-b", ago=59), on_gpu("xid/95", "GPU-a")) == {"xid/95": ("xid/45",)}
    assert told(on_gpu("xid/45", "GPU-b", ago=59), on_node("sxid/12028")) == {"sxid/12028": ("xid/45",)}


def test_a_clean_up_that_nothing_explains_is_watched():
    judgement = judged(on_gpu("xid/45"), on_gpu("xid/95", "GPU-b", ago=86400))
    assert [incident.lead for incident in judgement.incidents] == ["xid/95", "xid/45"]
    assert judgement.gpus["GPU-a"].verdict is Verdict.WATCH


def test_a_switch_fault_takes_the_nvlink_errors_of_all_gpus_and_their_clean_ups_along():
    findings = [on_gpu(code, uuid, ago=59) for uuid in GPU_NAMES for code in ("xid/74", "xid/45")]
    (incident,) = judged(on_node("sxid/20034"), *findings).incidents
    assert {incident.lead, *incident.members} == {"sxid/20034", "xid/74", "xid/45"}


def test_an_nvlink_error_long_before_a_switch_fault_is_an_incident_of_its_own():
    assert len(told(on_node("sxid/20034"), on_gpu("xid/74", ago=86400))) == 2


def test_a_blind_probe_explains_no_clean_up():
    assert set(told(on_node("monitor/blind", subject_id="dcgm"), on_gpu("xid/45"))) == {"monitor/blind", "xid/45"}


def test_a_nic_that_two_sources_complain_about_is_one_incident():
    assert len(told(on_nic("kernel/nic-health"), on_nic("nic/port-down"))) == 1
    assert len(told(on_nic("nic/port-down"), on_nic("nic/port-down", "mlx5_1"))) == 1  # by code; both are there:
    assert len(judged(on_nic("nic/port-down"), on_nic("nic/port-down", "mlx5_1")).incidents) == 2


def test_the_detail_of_an_xid_belongs_to_the_same_fault_as_the_bare_code():
    assert len({family(on_gpu(code)) for code in ("xid/74.hardware", "xid/74", "nvlink/crc", "xid/149.reset")}) == 1
    assert family(on_gpu("xid/154.2")) == family(on_gpu("recovery/2")) != family(on_gpu("xid/154"))


@given(st.lists(evidences, max_size=10))
def test_every_finding_that_asks_for_something_is_in_one_incident_and_the_first_decides(known):
    judgement = judged(*known)
    in_incidents = {code for incident in judgement.incidents for code in (incident.lead, *incident.members)}
    asking = {key[0] for key, verdict in judgement.verdicts.items() if verdict is not Verdict.NONE}
    assert asking <= in_incidents
    if asking:
        first: Incident = judgement.incidents[0]
        assert (first.lead, first.verdict) == (judgement.node.reason, judgement.node.verdict)
    severities = [incident.verdict.severity for incident in judgement.incidents]
    assert severities == sorted(severities, reverse=True)
