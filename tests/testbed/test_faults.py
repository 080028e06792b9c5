"""`inject` leaves in the driver folder what the driver would answer and print."""

import argparse
from pathlib import Path

import pynvml as n
import pytest

from testbed import faults, kernel_log
from testbed.errors import TestbedError
from testbed.nvml.state import NvmlState
from testbed.xid_lines import pci_place, xid_line
from tests.testbed.nvml_node import code_of

XID = n.nvmlEventTypeXidCriticalError


@pytest.fixture
def driver(node: NvmlState) -> Path:
    folder = node.path.parent.parent
    kernel_log.create(folder / "kmsg")
    return folder


def inject(driver: Path, line: str) -> str:
    parser = argparse.ArgumentParser()
    faults.add_arguments(parser)
    return faults.run(parser.parse_args(line.split()), driver)


def messages(driver: Path) -> list[str]:
    return [line.partition(";")[2] for line in (driver / "kmsg").read_text().splitlines()]


def waiting_set() -> object:
    events = n.nvmlEventSetCreate()
    for index in range(8):
        kinds = XID | n.nvmlEventTypeGpuRecoveryAction
        n.nvmlDeviceRegisterEvents(n.nvmlDeviceGetHandleByIndex(index), kinds, events)
    return events


def test_off_bus_loses_one_gpu_with_the_drivers_words(driver: Path) -> None:
    events, gpu = waiting_set(), n.nvmlDeviceGetHandleByIndex(0)
    assert "GPU 0 fell off the bus" in inject(driver, "off-bus --gpu 0")
    assert code_of(n.nvmlDeviceGetTemperature, gpu, 0) == n.NVML_ERROR_GPU_IS_LOST
    assert code_of(n.nvmlDeviceGetHandleByIndex, 0) == n.NVML_ERROR_GPU_IS_LOST
    assert n.nvmlDeviceGetCount() == 8
    assert messages(driver)[:2] == [
        "NVRM: Xid (PCI:0000:19:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "NVRM: GPU 0000:19:00.0: GPU has fallen off the bus.",
    ]
    event = n.nvmlEventSetWait(events, 0)
    assert (event.eventType, event.eventData) == (XID, 79)
    assert n.nvmlDeviceGetUUID(event.device) == n.nvmlDeviceGetUUID(gpu)


def test_a_gpu_can_be_lost_without_any_xid_and_with_another_code(driver: Path) -> None:
    events = waiting_set()
    inject(driver, "off-bus --gpu 5 --silent --code 999")
    assert code_of(n.nvmlDeviceGetHandleByIndex, 5) == n.NVML_ERROR_UNKNOWN
    assert messages(driver) == []
    assert code_of(n.nvmlEventSetWait, events, 0) == n.NVML_ERROR_TIMEOUT


def test_an_xid_has_its_own_words_or_the_given_ones_or_none(driver: Path) -> None:
    inject(driver, "xid 94 --gpu 1")
    inject(driver, "xid 13 --gpu 1 --message words")
    inject(driver, "xid 31337 --gpu 1")
    start = "NVRM: Xid (PCI:0000:3b:00): "
    assert messages(driver) == [
        start + "94, pid='<unknown>', name=<unknown>, Contained: CE User Channel (0x9). RST: No, D-RST: No",
        start + "13, pid='<unknown>', name=<unknown>, words",
        start + "31337, pid='<unknown>', name=<unknown>",
    ]


def test_an_xid_that_only_informs_sends_no_event(driver: Path) -> None:
    events = waiting_set()
    inject(driver, "xid 63")
    assert code_of(n.nvmlEventSetWait, events, 0) == n.NVML_ERROR_TIMEOUT


def test_memory_errors_count_on_and_uncorrectable_ones_want_a_row_remapped(driver: Path) -> None:
    gpu = n.nvmlDeviceGetHandleByIndex(2)
    inject(driver, "ecc --gpu 2 --count 3 --corrected")
    assert n.nvmlDeviceGetRemappedRows(gpu) == (0, 0, 0, 0)
    inject(driver, "ecc --gpu 2")
    inject(driver, "ecc --gpu 2")
    assert n.nvmlDeviceGetTotalEccErrors(gpu, 0, 0) == 3
    assert n.nvmlDeviceGetTotalEccErrors(gpu, 1, 1) == 2
    assert n.nvmlDeviceGetMemoryErrorCounter(gpu, 1, 0, 2) == 2
    assert n.nvmlDeviceGetRemappedRows(gpu) == (0, 2, 1, 0)
    assert [line.split("): ")[1][:2] for line in messages(driver)] == ["48", "63", "48", "63"]


def test_remap_failure_nvlink_and_recovery_action_show_in_nvml_and_the_log(driver: Path) -> None:
    gpu = n.nvmlDeviceGetHandleByIndex(4)
    inject(driver, "remap-failure --gpu 4")
    inject(driver, "nvlink-down --gpu 4 --link 3")
    inject(driver, "recovery-action 1 --gpu 4")
    inject(driver, "recovery-action 2 --gpu 4")
    assert n.nvmlDeviceGetRemappedRows(gpu)[3] == 1
    assert [n.nvmlDeviceGetNvLinkState(gpu, link) for link in range(18)].count(0) == 1
    assert n.nvmlDeviceGetFieldValues(gpu, [230])[0].value.uiVal == 2
    assert messages(driver)[-1].endswith(
        "154, pid='<unknown>', name=<unknown>, GPU recovery action changed from "
        "0x1 (GPU Reset Required) to 0x2 (Node Reboot Required)"
    )
    inject(driver, "nvlink-down --gpu 4")
    assert not any(n.nvmlDeviceGetNvLinkState(gpu, link) for link in range(18))


def test_clear_makes_the_node_healthy_and_keeps_the_log(driver: Path) -> None:
    uuid = n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(7))
    for line in ("off-bus --gpu 7", "init-failure 18", "hang --gpu 1", "hang", "fabric --status 23", "remap-failure"):
        inject(driver, line)
    inject(driver, "clear")
    n.nvmlInit()
    assert n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(7)) == uuid
    assert n.nvmlDeviceGetRemappedRows(n.nvmlDeviceGetHandleByIndex(0)) == (0, 0, 0, 0)
    assert messages(driver)


def test_set_changes_and_removes_any_key(driver: Path) -> None:
    inject(driver, "set --gpu 6 temperature.gpu=95 pcie.width=8")
    assert n.nvmlDeviceGetTemperature(n.nvmlDeviceGetHandleByIndex(6), 0) == 95
    inject(driver, "set --gpu 6 temperature.gpu=")
    assert n.nvmlDeviceGetTemperature(n.nvmlDeviceGetHandleByIndex(6), 0) == 32
    inject(driver, "set gpu.temperature.gpu=40")
    assert n.nvmlDeviceGetTemperature(n.nvmlDeviceGetHandleByIndex(5), 0) == 40


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("off-bus --gpu 8", "this node has GPUs 0 to 7"),
        ("hang --gpu -1", "this node has GPUs 0 to 7"),
        ("nvlink-down --gpu 0 --link 18", "GPU 0 has links 0 to 17"),
        ("set --gpu 0 warm", "write KEY=VALUE"),
        ("set --gpu 9 a=1", "this node has GPUs 0 to 7"),
    ],
)
def test_what_does_not_fit_the_node_is_refused_and_changes_nothing(driver: Path, line: str, says: str) -> None:
    before = (driver / "lib" / "nvml.state").read_bytes()
    with pytest.raises(TestbedError, match=says):
        inject(driver, line)
    assert (driver / "lib" / "nvml.state").read_bytes() == before
    assert messages(driver) == []


def test_a_folder_that_is_no_driver_is_named(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="no such state file; is the node's name right"):
        inject(tmp_path, "off-bus")


def test_places_of_any_domain_are_written_as_the_driver_writes_them() -> None:
    assert pci_place("00000008:01:00.0") == "0008:01:00"
    assert xid_line("00000000:DB:00.0", 79).startswith("NVRM: Xid (PCI:0000:db:00): 79,")
