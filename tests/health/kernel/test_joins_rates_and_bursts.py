import pytest

from outrider.api.gpunode import SubjectKind
from outrider.health.findings import merge
from outrider.health.kernel.bursts import Bursts
from outrider.health.kernel.rates import Limit, Rates
from outrider.health.kernel.reader import KernelReader
from outrider.health.kernel.recent import Recent
from outrider.health.kernel.words import Happening

PORT = "pcieport 0000:00:01.0: AER: Corrected error received: 0000:3b:00.0"
CORRECTED = "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
EDAC = "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1)"
CHECK = "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: 9c00004000010092"


def counts(reader: KernelReader, line: str, times: list[float]) -> list[int]:
    return [sum(said.count for said in reader.read(line, now) if isinstance(said, Happening)) for now in times]


def test_corrected_errors_are_told_once_they_are_frequent_and_then_each():
    times = [float(second) for second in range(12)]
    assert counts(KernelReader(), CORRECTED, times) == [0] * 9 + [10, 1, 1]


def test_corrected_errors_far_apart_are_never_told():
    times = [float(hour * 3600) for hour in range(100)]
    assert counts(KernelReader(), CORRECTED, times) == [0] * 100


def test_port_and_device_tell_of_one_corrected_error_together():
    reader = KernelReader()
    told = [counts(reader, PORT, [second])[0] + counts(reader, CORRECTED, [second])[0] for second in range(11)]
    assert told == [0] * 9 + [10, 1]


@pytest.mark.parametrize(
    ("line", "code"), [(EDAC, "kernel/memory-corrected"), (CHECK, "kernel/mce-corrected")], ids=["edac", "mce"]
)
def test_corrected_memory_errors_are_told_once_ten_came_within_a_day(line, code):
    reader = KernelReader()
    told = [said for hour in range(10) for said in reader.read(line, hour * 3600.0)]
    assert [(said.code, said.count) for said in told] == [(code, 10)]
    assert counts(reader, line, [9 * 3600.0 + day * 86_400.0 for day in range(1, 9)]) == [0] * 8


def test_rates_forget_the_device_that_was_quiet_for_longest():
    rates = Rates(Limit(events=2, seconds=10))
    for device in range(2000):
        assert rates.add(str(device), 0.0) == 0
    assert rates.add("1999", 1.0) == 2
    assert rates.add("0", 1.0) == 0


def test_what_was_seen_a_moment_ago_is_taken_once_and_only_for_a_moment():
    recent = Recent()
    recent.note("a", 10.0)
    assert not recent.take("b", 10.0)
    assert recent.take("a", 11.0)
    assert not recent.take("a", 11.0)
    recent.note("a", 10.0)
    assert not recent.take("a", 13.0)
    for number in range(3000):
        recent.note(str(number), 20.0)
    assert not recent.take("0", 20.0)


def test_a_new_oops_after_a_while_counts_again():
    line = "BUG: kernel NULL pointer dereference, address: 0000000000000008"
    assert counts(KernelReader(), line, [0.0, 0.5, 60.0]) == [1, 0, 1]


def test_a_switch_event_waits_for_its_further_lines_and_no_longer():
    reader = KernelReader()
    head = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, "
    assert reader.read(f"{head}Fatal, Link 55 sourcetrack timeout error (First)", 100.0) == []
    assert (reader.waiting_since, reader.overdue(100.5), reader.overdue(101.5)) == (100.0, False, True)
    assert reader.read(f"{head}Severity 1 Engine instance 55 Sub-engine instance 00", 100.0) == []
    (event,) = reader.flush()
    assert event.line.endswith("timeout error (First); Severity 1 Engine instance 55 Sub-engine instance 00")
    assert reader.waiting_since is None
    assert reader.flush() == []


def test_the_line_of_a_switch_event_does_not_grow_without_end():
    reader = KernelReader()
    head = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, "
    reader.read(f"{head}Fatal, Link 55 sourcetrack timeout error (First)", 1.0)
    for number in range(10_000):
        assert reader.read(f"{head}Data {{{number:#x}, 0x10100030}}", 1.0) == []
    (event,) = reader.flush()
    assert len(event.line) < 1024


def test_many_waiting_switch_events_are_let_go_and_none_is_lost():
    reader = KernelReader()
    heads = [f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): {24000 + n}, Fatal, Link 5 x" for n in range(500)]
    told = [said for line in heads for said in reader.read(line, 1.0)] + reader.flush()
    assert sorted(said.code for said in told) == sorted(f"sxid/{24000 + n}" for n in range(500))


def happening(code: str, line: str = "", unit: str = "", subject_id: str = "pci:00000000:3b:00") -> Happening:
    return Happening(code=code, subject=SubjectKind.GPU, subject_id=subject_id, unit=unit, line=line)


def test_a_storm_is_one_finding_with_exact_counts():
    bursts = Bursts("kernel-log")
    for number in range(20_000):
        bursts.add(happening("xid/95", f"line {number % 29}"), 1000.0 + number, number)
    ((sequence, evidence),) = bursts.take()
    assert (sequence, evidence.count, evidence.distinct) == (19_999, 20_000, 29)
    assert (evidence.first_seen, evidence.last_seen) == (1000.0, 20_999.0)
    assert bursts.take() == []


def test_units_are_kept_apart_until_findings_are_joined():
    bursts = Bursts("kernel-log")
    for unit in ("GPC 1 TPC 2", "GPC 1 TPC 3", "GPC 1 TPC 2"):
        bursts.add(happening("xid/13", unit, unit), 1.0, 1)
    evidence = [evidence for _, evidence in bursts.take()]
    assert sorted((one.unit, one.count) for one in evidence) == [("GPC 1 TPC 2", 2), ("GPC 1 TPC 3", 1)]
    (joined,) = merge({}, evidence).values()
    assert joined.count == 3


def test_more_kinds_than_can_be_kept_apart_are_counted_as_a_flood():
    bursts = Bursts("kernel-log")
    for number in range(5000):
        bursts.add(happening(f"xid/{number}", subject_id=f"pci:{number:08x}:00:00"), 1.0, number)
    evidence = [evidence for _, evidence in bursts.take()]
    assert len(evidence) == 2049
    assert sum(one.count for one in evidence) == 5000
    (flood,) = (one for one in evidence if one.code == "kernel/flood")
    assert (flood.subject, flood.subject_id, flood.count) == (SubjectKind.NODE, "", 5000 - 2048)


def test_more_units_than_can_be_told_apart_are_one_and_no_flood():
    bursts = Bursts("kernel-log")
    for number in range(5000):
        bursts.add(happening("xid/31", unit=f"GPC0 T{number}"), 1.0, number)
    evidence = [evidence for _, evidence in bursts.take()]
    assert (len(evidence), {one.code for one in evidence}) == (1025, {"xid/31"})
    assert sum(one.count for one in evidence) == 5000


def test_the_memory_of_different_lines_is_bounded():
    bursts = Bursts("kernel-log")
    for number in range(10_000):
        bursts.add(happening("xid/31", f"faulted @ {number:#x}"), 1.0, number)
    ((_, evidence),) = bursts.take()
    assert (evidence.count, evidence.distinct, len(evidence.variants)) == (10_000, 256, 256)


def test_a_flood_keeps_the_line_that_began_it_readable():
    bursts = Bursts("kernel-log")
    for number in range(2000):
        bursts.add(happening(f"xid/{number}", "NVRM: Xid " + "x" * 2000), 1.0, number)
    assert all(len(evidence.line) == 512 for _, evidence in bursts.take())


def test_a_line_end_in_a_text_of_a_program_forges_no_line_of_the_driver():
    forged = "overlayfs: failed to resolve '/tmp/x\nNVRM: Xid (PCI:0000:3b:00): 79, x': -2"
    assert list(KernelReader().read(forged, 0.0)) == []
    real = "NVRM: first\nNVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    assert [one.code for one in KernelReader().read(real, 0.0)] == ["xid/79"]


def test_a_board_that_the_driver_does_not_serve_is_not_taken_for_one_that_is_lost():
    lines = (
        "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1cb1)",
        "NVRM: installed in this system is not supported by the",
        "NVRM: The NVIDIA GPU 0000:3b:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    reader = KernelReader()
    said = [one for line in lines for one in reader.read(line, 0.0)]
    assert [(one.code, one.subject_id) for one in said] == [("kernel/off-bus", "pci:00000000:3b:00")]
