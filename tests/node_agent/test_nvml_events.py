"""The same Xid told by the kernel log and by NVML is one finding with the right count, whichever comes first."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from node_agent.judging import Rules, absorb
from node_agent.memory import Memory
from node_agent.probes.nvml_wire import Event, GPUReading, Snapshot
from node_agent.probes.report import KernelPosition, Report, Sighting
from node_agent.readings.nvml.events import evidence_of, gathered
from outrider.api.gpunode import SubjectKind
from outrider.health.catalogue import load
from outrider.health.findings import seen

NOW = 1_800_000_000.0
RULES = Rules(catalogue=load(), clear_dwell_seconds=30, expected_gpus=0)
HEALTHY = Report(snapshot=Snapshot(gpus=[GPUReading(index=0, uuid="GPU-0", pci_address="00000000:19:00")]))
XID, UNAVAILABLE, RECOVERY = 0x8, 0x4000, 0x8000


def told(kind: int, data: int, times: int = 1) -> Report:
    return Report(events=gathered([Event(0, "GPU-0", kind, data)] * times, NOW))


class Log:
    """Writes the kernel log's reports with growing sequence numbers."""

    def __init__(self) -> None:
        self.sequence = -1

    def line(self, code: str) -> Report:
        self.sequence += 1
        evidence = seen(code, NOW, subject=SubjectKind.GPU, subject_id="pci:00000000:19:00", source="kernel-log")
        return Report(sightings=(Sighting(self.sequence, evidence),), position=KernelPosition("b", self.sequence))


def after(memory: Memory, *reports: Report, name: str = "nvml") -> Memory:
    for report in reports:
        memory = absorb(memory, "kernel-log" if report.position else name, report, NOW, RULES)
    return memory


def counts(memory: Memory) -> dict[str, int]:
    return {evidence.code: evidence.count for evidence in memory.findings}


@given(st.permutations(["line"] * 3 + ["event"] * 2))
def test_the_order_of_lines_and_events_never_changes_the_count(order):
    log, memory = Log(), after(Memory(), HEALTHY)
    for step in order:
        memory = after(memory, log.line("xid/48") if step == "line" else told(XID, 48))
    assert counts(memory) == {"xid/48": 3}


def test_events_alone_count_where_the_log_never_tells():
    memory = after(Memory(), HEALTHY, told(XID, 79), told(XID, 79, times=2))
    assert counts(memory) == {"xid/79": 3}


def test_while_the_log_is_blind_an_event_counts_beyond_what_the_log_had_told():
    log = Log()
    memory = after(Memory(), HEALTHY, log.line("xid/48"), log.line("xid/48"), told(XID, 48), told(XID, 48))
    memory = absorb(memory, "kernel-log", Report(blind="gone"), NOW, RULES)
    memory = after(memory, told(XID, 48))
    assert counts(memory)["xid/48"] == 3
    assert counts(after(memory, log.line("xid/48")))["xid/48"] == 3


def test_a_finding_of_the_log_that_knows_more_takes_the_place_of_the_events():
    for reports in ((told(XID, 149), Log().line("xid/149.8")), (Log().line("xid/149.8"), told(XID, 149))):
        assert counts(after(Memory(), HEALTHY, *reports)) == {"xid/149.8": 1}


def test_a_recovery_action_is_taken_over_early_and_clears_when_readings_do_not_show_it():
    memory = after(Memory(), HEALTHY, told(RECOVERY, 2), told(RECOVERY, 2))
    assert counts(memory) == {"recovery/2": 1}
    for seconds in (1, 40):
        memory = absorb(memory, "nvml", HEALTHY, NOW + seconds, RULES)
    assert counts(memory) == {}


def test_events_that_only_a_reading_can_explain_say_nothing_themselves():
    assert evidence_of(Event(0, "GPU-0", 0x2, 5), NOW) is None
    assert evidence_of(Event(0, "GPU-0", RECOVERY, 0), NOW) is None
    assert evidence_of(Event(0, "GPU-0", XID, 154), NOW) is None
    assert evidence_of(Event(0, "GPU-0", UNAVAILABLE, 0), NOW).code == "gpu/unavailable"


def test_a_gpu_without_a_uuid_is_named_by_its_index():
    assert evidence_of(Event(3, "", XID, 79), NOW).subject_id == "index:3"


def test_the_two_counters_survive_a_restart():
    memory = after(Memory(), HEALTHY, told(XID, 48))
    again = msgspec.json.decode(msgspec.json.encode(memory), type=Memory)
    assert counts(after(again, Log().line("xid/48"))) == {"xid/48": 1}
