"""What is told once stays told once: restarts of the agent, reboots, logs that begin anew, gaps, drills."""

import asyncio
import os
import pty
import time
import tty

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.config import Config
from node_agent.judging import Rules, absorb
from node_agent.memory import Memory
from node_agent.probes.kernel_log import KernelLogProbe
from node_agent.probes.registry import Surroundings
from node_agent.probes.report import KernelPosition, Report
from outrider.health.catalogue import load
from testbed import kernel_log
from testbed.xid_lines import xid_line

BUS, OTHER_BUS = "00000000:3B:00.0", "00000000:5E:00.0"
CATALOGUE = load()
RULES = Rules(catalogue=CATALOGUE, clear_dwell_seconds=30, expected_gpus=0)
SXID = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, "


def config_of(folder, **settings) -> Config:
    return Config(kernel_log_path=str(folder / "kmsg"), boot_id_path=str(folder / "boot_id"), **settings)


@pytest.fixture
def folder(tmp_path):
    kernel_log.create(tmp_path / "kmsg")
    (tmp_path / "boot_id").write_text("boot-1\n")
    return tmp_path


@pytest.fixture
async def probe(folder):
    probe = KernelLogProbe(config_of(folder))
    yield probe
    await probe.close()


async def read_once(config: Config, position: KernelPosition | None = None, driver_version: str = "") -> Report:
    """What an agent reads that starts with this memory."""
    probe = KernelLogProbe(config)
    probe.attach(
        Surroundings(
            catalogue=lambda: CATALOGUE, kernel_position=lambda: position, driver_version=lambda: driver_version
        )
    )
    try:
        return await probe.read()
    finally:
        await probe.close()


def counts(report: Report) -> dict[str, int]:
    told: dict[str, int] = {}
    for sighting in report.sightings:
        told[sighting.evidence.code] = told.get(sighting.evidence.code, 0) + sighting.evidence.count
    return told


async def test_a_restarted_agent_is_told_only_what_it_has_not_taken_in(folder):
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 95)] * 10)
    report = await read_once(config_of(folder), KernelPosition("boot-1", 6))
    assert counts(report) == {"xid/95": 3}
    assert report.position.sequence == 9


async def test_the_memory_of_another_boot_hides_nothing(folder):
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 95)] * 10)
    assert counts(await read_once(config_of(folder), KernelPosition("boot-0", 6))) == {"xid/95": 10}


async def test_old_records_still_teach_who_has_which_address(folder):
    uuid = "GPU-28fbe81c-729a-5211-b9d5-a35112e35514"
    kernel_log.append(folder / "kmsg", [f"NVRM: GPU at PCI:0000:3b:00: {uuid}", xid_line(BUS, 79)])
    report = await read_once(config_of(folder), KernelPosition("boot-1", 1))
    assert (counts(report), report.addresses) == ({}, {"pci:00000000:3b:00": uuid})


async def test_a_notice_that_began_before_the_restart_is_joined_after_it(folder):
    three = ["NVRM: The NVIDIA GPU 0000:3b:00.0", "NVRM: (PCI ID: 10de:2330) installed in this system has"]
    kernel_log.append(folder / "kmsg", [*three, "NVRM: fallen off the bus and is not responding to commands."])
    (lost,) = (await read_once(config_of(folder), KernelPosition("boot-1", 1))).sightings
    assert (lost.evidence.code, lost.evidence.subject_id) == ("kernel/off-bus", "pci:00000000:3b:00")


@pytest.mark.parametrize("cursor", [-1, 0, 1, 2])
async def test_a_switch_event_is_told_once_wherever_a_restart_cuts_it(folder, cursor):
    rest = [f"{SXID}Severity 1 Engine instance 55", f"{SXID}Data {{0x1}}"]
    kernel_log.append(folder / "kmsg", [f"{SXID}Fatal, Link 55 timeout", *rest])
    report = await read_once(config_of(folder), KernelPosition("boot-1", cursor))
    assert counts(report) == ({"sxid/24007": 1} if cursor < 0 else {})


async def test_further_lines_that_come_late_are_no_events_of_their_own(folder, probe):
    port = "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0"
    device = "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)"
    told = []
    for line in (f"{SXID}Fatal, Link 55 timeout", f"{SXID}Severity 1 Engine instance 55", port, device):
        kernel_log.append(folder / "kmsg", [line])
        told.append(counts(await probe.read()))
    assert told == [{"sxid/24007": 1}, {}, {"kernel/aer-fatal": 1}, {}]


_LINES = [
    xid_line(BUS, 95, "line LINE"),
    f"{SXID}Fatal, Link 55 sourcetrack timeout error (First)",
    f"{SXID}Severity 1 Engine instance 55 Sub-engine instance 00",
    f"{SXID}Data {{0x50610002}}",
    xid_line(OTHER_BUS, 13, "line LINE"),
    "NVRM: The NVIDIA GPU 0000:3b:00.0",
    "usb 1-1: new",
    "NVRM: fallen off the bus and is not responding to commands.",
    "EDAC MC0: 3 CE memory read error on DIMM#0 (channel:0)",
]


async def _told_at_once(folder, lines: list[str]) -> dict[tuple[str, str], int]:
    (folder / "whole").mkdir()
    kernel_log.append(folder / "whole" / "kmsg", lines)
    (folder / "whole" / "boot_id").write_text("boot-1\n")
    memory = absorb(Memory(), "kernel-log", await read_once(config_of(folder / "whole")), 1e9, RULES)
    return {(known.code, known.subject_id): known.count for known in memory.findings}


@given(cuts=st.lists(st.integers(0, 60), max_size=5), each=st.integers(1, 9))
@settings(max_examples=40)
def test_restarts_anywhere_neither_lose_nor_double_a_line(tmp_path_factory, cuts, each):
    folder = tmp_path_factory.mktemp("node")
    (folder / "boot_id").write_text("boot-1\n")
    kernel_log.create(folder / "kmsg")
    lines = [_LINES[n % len(_LINES)].replace("LINE", str(n % each)) for n in range(60)]
    whole = asyncio.run(_told_at_once(folder, lines))
    memory = Memory()

    async def life(upto: int) -> None:
        nonlocal memory
        saved = memory
        report = await read_once(config_of(folder), KernelPosition(saved.boot_id, saved.sequence))
        memory = absorb(saved, "kernel-log", report, 1e9 + upto, RULES)

    written = 0
    for cut in [*sorted(cuts), 60]:
        kernel_log.append(folder / "kmsg", lines[written:cut])
        written = max(written, cut)
        asyncio.run(life(cut))
    found = {(known.code, known.subject_id): known.count for known in memory.findings}
    assert found == whole


async def test_a_new_boot_id_begins_the_log_anew(folder, probe):
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 95)] * 3)
    assert counts(await probe.read()) == {"xid/95": 3}
    (folder / "boot_id").write_text("boot-2\n")
    kernel_log.clear(folder / "kmsg")
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 79)])
    probe._boot_id_read = float("-inf")  # the second between two looks at the boot id is over
    report = await probe.read()
    assert (counts(report), report.position.boot_id, report.position.sequence) == ({"xid/79": 1}, "boot-2", 0)


async def test_a_log_that_comes_late_after_a_reboot_is_read_from_its_start(folder, probe):
    kernel_log.append(folder / "kmsg", ["usb"] * 10)
    await probe.read()
    (folder / "boot_id").write_text("boot-2\n")
    (folder / "kmsg").unlink()
    probe._boot_id_read = float("-inf")  # the second between two looks at the boot id is over
    with pytest.raises(FileNotFoundError):
        await probe.read()
    kernel_log.create(folder / "kmsg")
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 79)])
    assert counts(await probe.read()) == {"xid/79": 1}


async def test_a_log_that_went_and_came_back_is_read_from_its_start(folder, probe):
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 95)] * 10)
    await probe.read()
    (folder / "kmsg").unlink()
    with pytest.raises(FileNotFoundError):
        await probe.read()
    kernel_log.create(folder / "kmsg")
    assert counts(await probe.read()) == {}
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 79)])
    report = await probe.read()
    assert counts(report) == {"xid/79": 1}
    assert report.position == KernelPosition("boot-1", 0, restarted=True)
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 48)])
    assert counts(await probe.read()) == {"xid/48": 1}


async def test_a_log_that_ends_before_what_the_memory_says_was_taken_in_is_another_one(folder):
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 79)])
    report = await read_once(config_of(folder), KernelPosition("boot-1", 10**17))
    assert counts(report) == {"xid/79": 1}
    assert report.position == KernelPosition("boot-1", 0, restarted=True)


async def test_a_record_from_the_future_is_of_now(folder):
    (folder / "kmsg").write_text(f"4,0,{10**15},-;{xid_line(BUS, 79)}\n")
    (told,) = (await read_once(config_of(folder))).sightings
    assert told.evidence.first_seen == pytest.approx(time.time(), abs=5)


async def test_records_that_were_overwritten_unread_are_a_finding(folder, probe):
    (folder / "kmsg").write_text("6,100,1,-;usb 1-1: new\n")
    assert counts(await probe.read()) == {}
    with (folder / "kmsg").open("a") as log:
        log.write("6,151,2,-;usb 1-1: new\n6,152,3,-;usb 1-1: new\n")
    assert counts(await probe.read()) == {"kernel/records-lost": 50}
    assert counts(await read_once(config_of(folder), KernelPosition("boot-1", 90))) == {"kernel/records-lost": 59}


async def test_numbers_that_go_back_are_no_gap(folder, probe):
    (folder / "kmsg").write_text("6,100,1,-;usb\n6,99,1,-;usb\n6,101,1,-;usb\n6,101,1,-;usb\n")
    report = await probe.read()
    assert (counts(report), report.position.sequence) == ({}, 101)


async def test_a_line_in_pieces_is_read_whole_and_counted_once(folder, probe):
    (folder / "kmsg").write_text(
        "4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has\n4,2,1,c; fallen off\n4,3,1,c; the bus.\n"
        "4,4,1,-;NVRM: Xid (PCI:0000\n4,5,1,c;:5e:00): 95, Uncontained\n"
    )
    report = await probe.read()
    assert counts(report)["xid/79"] == 1
    assert {s.evidence.subject_id for s in report.sightings if s.evidence.code == "xid/95"} <= {"pci:00000000:5e:00"}


async def test_a_record_of_several_lines_is_read_line_by_line(folder, probe):
    words = "NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: (PCI ID: 10de:2330) installed has\nNVRM: fallen off the bus"
    kernel_log.append(folder / "kmsg", [words])
    (lost,) = (await probe.read()).sightings
    assert lost.evidence.subject_id == "pci:00000000:3b:00"


async def test_drills_count_only_where_they_are_allowed_and_show_that_they_are_drills(folder):
    (folder / "kmsg").write_text(f"12,0,1,-;outrider-drill: {xid_line(BUS, 79)}\n")
    assert counts(await read_once(config_of(folder))) == {}
    (drill,) = (await read_once(config_of(folder, allow_drills=True))).sightings
    assert drill.evidence.code == "xid/79"
    assert drill.evidence.line.startswith("outrider-drill: NVRM: Xid")


async def test_links_and_errors_of_ports_are_those_of_the_gpu_that_the_agent_knows(folder):
    uuid = "GPU-28fbe81c-729a-5211-b9d5-a35112e35514"
    lines = [xid_line(BUS, 74), "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0"]
    lines.append("mlx5_core 0000:b3:00.1: poll_health:845:(pid 0): device's health compromised - reached miss count")
    kernel_log.append(folder / "kmsg", lines)
    known = Memory(addresses={"pci:00000000:3b:00": uuid, "pci:00000000:b3:00.1": "mlx5_1"})
    memory = absorb(known, "kernel-log", await read_once(config_of(folder)), 1e9, RULES)
    found = {(str(one.subject), one.subject_id) for one in memory.findings}
    assert found == {("link", f"{uuid}/3"), ("gpu", uuid), ("nic", "mlx5_1")}


async def test_a_drill_does_not_hide_the_real_fault_beside_it(folder):
    line = xid_line(BUS, 79)
    (folder / "kmsg").write_text(f"4,0,1,-;{line}\n12,1,2,-;outrider-drill: {line}\n")
    report = await read_once(config_of(folder, allow_drills=True))
    assert sorted(sighting.evidence.line for sighting in report.sightings) == [line, f"outrider-drill: {line}"]


async def test_a_drill_teaches_nothing_about_the_machine(folder):
    uuid = "GPU-28fbe81c-729a-5211-b9d5-a35112e35514"
    lines = [f"12,0,1,-;outrider-drill: NVRM: GPU at PCI:0000:3b:00: {uuid}"]
    lines.append("4,1,1,-;pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0")
    (folder / "kmsg").write_text("\n".join(lines) + "\n")
    report = await read_once(config_of(folder, allow_drills=True))
    assert report.addresses == {}
    assert [str(sighting.evidence.subject) for sighting in report.sightings] == ["node"]


async def test_kernel_lines_that_call_themselves_drills_are_no_faults(folder):
    (folder / "kmsg").write_text(f"4,0,1,-;outrider-drill: {xid_line(BUS, 79)}\n")
    assert counts(await read_once(config_of(folder, allow_drills=True))) == {}


async def test_the_driver_version_that_nvml_told_reads_nvlink_words_until_the_log_tells_it(folder):
    words = "RLW_SRC_TRACK Fatal XC0 i0 Link 05 (0x00000007 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)"
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 145, words)])
    assert set(counts(await read_once(config_of(folder)))) != {"xid/145.reset"}
    assert set(counts(await read_once(config_of(folder), driver_version="580.82.07"))) == {"xid/145.reset"}


async def test_a_storm_is_one_sighting_with_exact_counts(folder, probe):
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 95, f"Uncontained: unit {n % 29}") for n in range(20_000)])
    (storm,) = (await probe.read()).sightings
    assert (storm.evidence.count, storm.evidence.distinct, storm.sequence) == (20_000, 29, 19_999)


async def test_a_grave_line_after_thousands_of_different_ones_is_told(folder, probe):
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 1000 + number) for number in range(5000)] + [xid_line(BUS, 79)])
    told = []
    while "xid/79" not in (report := counts(await probe.read())):
        assert report
        assert probe.wake.is_set(), "the rest waits for nothing"
        told += report
    assert len({*told, *report}) == 5001
    assert "kernel/flood" not in told


async def test_a_reading_that_is_cut_short_loses_nothing(folder, probe):
    kernel_log.append(folder / "kmsg", [xid_line(BUS, 95)] * 5000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await probe.read()
    assert counts(await probe.read()) == {"xid/95": 5000}


async def test_a_file_wakes_the_agent_when_it_is_written_replaced_or_removed(folder, probe):
    await probe.read()
    for change in (lambda: kernel_log.append(folder / "kmsg", ["usb"]), (folder / "kmsg").unlink):
        assert not probe.wake.is_set()
        change()
        async with asyncio.timeout(5):
            await probe.wake.wait()
        probe.wake.clear()
        if (folder / "kmsg").exists():
            await probe.read()


async def test_lines_that_come_one_by_one_wake_the_agent_no_more_than_fifty_times_a_second(folder, probe):
    clock = asyncio.get_running_loop().time
    await probe.read()
    began, wakeups = clock(), 0
    for _ in range(10):
        kernel_log.append(folder / "kmsg", ["usb"])
        async with asyncio.timeout(5):
            await probe.wake.wait()
        probe.wake.clear()
        await probe.read()
        wakeups += 1
    assert wakeups / (clock() - began) <= 55


async def test_a_device_is_not_read_again_while_nobody_writes(folder):
    ours, device = pty.openpty()
    tty.setraw(device)
    probe = KernelLogProbe(Config(kernel_log_path=os.ttyname(device), boot_id_path=str(folder / "boot_id")))
    try:
        await probe.read()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await probe.wake.wait()
        os.write(ours, f"4,0,1,-;{xid_line(BUS, 79)}\n".encode())
        async with asyncio.timeout(5):
            await probe.wake.wait()
        assert counts(await probe.read()) == {"xid/79": 1}
    finally:
        await probe.close()
        os.close(ours)
        os.close(device)


async def test_a_probe_that_is_closed_leaves_no_file_open(folder):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        await read_once(config_of(folder))
    assert len(os.listdir("/proc/self/fd")) <= before
