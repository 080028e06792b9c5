"""The kernel log lies, repeats itself and forgets nothing: storms, forged and quoted lines, harmless after fatal."""

import resource
import time

import pytest

from outrider.api.gpunode import Verdict
from outrider.health.findings import VARIANTS_MAX
from testbed.xid_lines import recovery_line, xid_line
from tests.incidents.machine import Machine, Switch

DAY = 86_400.0


def write_storm(machine: Machine, lines: int, different: int) -> None:
    """Lines of one GPU's memory error, as the driver repeats them for each program that it kills."""
    kinds = [
        xid_line(machine.bus(6), 95, f"Uncontained: LTC TAG (0x{kind:x},0x0). RST: Yes, D-RST: No")
        for kind in range(different)
    ]
    now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    with machine.log.open("w") as log:
        log.writelines(
            f"4,{number},{now_us - lines + number},-;{kinds[number % different]}\n" for number in range(lines)
        )


@pytest.mark.parametrize("lines", [8_000, pytest.param(800_000, marks=pytest.mark.slow)])
async def test_a_storm_of_xid_95_with_29_distinct_lines_is_one_finding_with_exact_counts(switch_on: Switch, lines: int):
    machine = switch_on()
    write_storm(machine, lines, 29)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await machine.look()
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    (storm,) = machine.memory.findings
    assert (storm.code, storm.subject_id, storm.count, storm.distinct) == ("xid/95", machine.uuid(6), lines, 29)
    assert storm.distinct < VARIANTS_MAX
    assert grown_kb < 32 * 1024, "however many lines there are"
    assert machine.ill == {machine.uuid(6): Verdict.RESET}
    assert (machine.taint, machine.score) == ("xid-95", 0)
    (published,) = machine.status.findings
    assert (published.count, published.distinct) == (lines, 29)
    await machine.restart()
    await machine.look()
    assert [(one.code, one.count) for one in machine.memory.findings] == [("xid/95", lines)], "told once"


async def test_a_later_harmless_code_hides_no_earlier_fatal_one(switch_on: Switch):
    machine = switch_on()
    machine.kernel(xid_line(machine.bus(2), 79))
    await machine.look()
    machine.kernel(*(xid_line(machine.bus(2), code) for code in (13, 31, 43, 45, 63, 94)))
    machine.kernel(*(xid_line(machine.bus(gpu), 13) for gpu in range(8)))
    await machine.look()
    await machine.look(seconds=5 * DAY)
    assert (machine.verdict, machine.judgement.node.reason, machine.taint) == (Verdict.REBOOT, "xid/79", "xid-79")
    assert machine.ill == {machine.uuid(2): Verdict.REBOOT}
    assert ("xid/79", machine.uuid(2)) in machine.found


async def test_a_flood_of_codes_that_nobody_knows_hides_no_fatal_one_and_acts_on_nothing(switch_on: Switch):
    machine = switch_on()
    machine.kernel(*(xid_line(machine.bus(code % 8), 1000 + code, "news") for code in range(900)))
    await machine.look()
    assert (machine.verdict, machine.taint, machine.ill) == (Verdict.WATCH, None, {})
    machine.kernel(xid_line(machine.bus(2), 79))
    machine.kernel(*(xid_line(machine.bus(code % 8), 5000 + code, "news") for code in range(900)))
    await machine.look()
    assert (machine.judgement.node.reason, machine.ill) == ("xid/79", {machine.uuid(2): Verdict.REBOOT})


async def test_the_last_word_of_the_driver_counts_and_a_fault_after_it_counts_again(switch_on: Switch):
    machine = switch_on()
    machine.kernel(recovery_line(machine.bus(1), 0, 1))
    await machine.look()
    assert machine.ill == {machine.uuid(1): Verdict.RESET}
    machine.kernel(recovery_line(machine.bus(1), 1, 0))
    await machine.look()
    assert (machine.taint, machine.ill) == (None, {})
    machine.kernel(xid_line(machine.bus(1), 119))
    await machine.look()
    assert machine.ill == {machine.uuid(1): Verdict.RESET}


FORGED = [
    "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.",
    "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 22003, Fatal, Link 00 error",
    "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 5: be00000000800400",
    "mlx5_core 0000:b3:00.1: health compromised - reached miss count",
    "outrider-drill: NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "EXT4-fs (nvme0n1p1): Remounting filesystem read-only",
]


@pytest.mark.parametrize("line", FORGED, ids=lambda line: line[:24])
async def test_a_line_that_a_program_forged_says_nothing(switch_on: Switch, line: str):
    machine = switch_on()
    machine.program(line)
    await machine.look()
    assert (machine.found, machine.score, machine.taint) == ([], 100, None)


@pytest.mark.parametrize("line", FORGED, ids=lambda line: line[:24])
async def test_the_same_line_of_the_kernel_is_a_finding_but_for_the_drill(switch_on: Switch, line: str):
    machine = switch_on()
    machine.kernel(line)
    await machine.look()
    assert bool(machine.found) is not line.startswith("outrider-drill")


QUOTED = [
    "train.py[4211]: last words of the other node: {}",
    "audit: type=1400 msg='{}'",
    "systemd[1]: node-agent.service: {}",
    "python3[77]: segfault at 0 ip 00007f error 4 in libc.so.6 ({})",
    " {}",
    "XID WATCHER: {}",
    "usb 1-1: Product: {}",
]


@pytest.mark.parametrize("frame", QUOTED, ids=lambda frame: frame[:16])
async def test_a_fault_quoted_within_another_line_says_nothing(switch_on: Switch, frame: str):
    machine = switch_on()
    machine.kernel(*(frame.format(line) for line in FORGED[:2]))
    await machine.look()
    assert (machine.found, machine.score, machine.taint) == ([], 100, None)


async def test_a_forged_line_leaves_the_real_one_its_count(switch_on: Switch):
    machine = switch_on()
    machine.program(FORGED[0])
    machine.kernel(FORGED[0])
    machine.program(FORGED[0])
    await machine.look()
    assert [(one.code, one.count) for one in machine.memory.findings] == [("xid/79", 1)]
    assert machine.ill == {machine.uuid(0): Verdict.REBOOT}
