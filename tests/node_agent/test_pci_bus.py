"""GPUs on the PCI bus, from a tree of the form that the kernel's sysfs has."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.inventory import GPURecord, match
from node_agent.probes import pci
from node_agent.probes.nvml_wire import GPUReading, PCIDevice, Snapshot
from node_agent.probes.pci import PCIBus, with_bus
from node_agent.readings.nvml import judge_snapshot

ADDRESSES = ("00000000:19:00", "00000000:3b:00", "00000000:4c:00")


def device(folder: Path, name: str, driver: str = "nvidia", vendor="0x10de", kind="0x030200", **files: str) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    link = {"current_link_width": "16", "current_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}
    for file, text in {"vendor": vendor, "class": kind, **link, **files}.items():
        (path / file).write_text(f"{text}\n")
    if driver:
        (folder.parent / driver).mkdir(exist_ok=True)
        (path / "driver").symlink_to(folder.parent / driver)
    return path


@pytest.fixture
def bus(tmp_path):
    folder = tmp_path / "devices"
    for name in ("0000:19:00.0", "0000:3b:00.0", "0000:4c:00.0"):
        device(folder, name)
    device(folder, "0000:00:1f.0", driver="", vendor="0x8086", kind="0x060100")
    device(folder, "0000:9a:00.0", kind="0x068000")  # an NVSwitch
    device(folder, "0000:19:00.1", kind="0x040300")  # the sound of a display board
    return folder


def reading(index: int, **values) -> GPUReading:
    return GPUReading(index=index, uuid=f"GPU-{index}", pci_address=ADDRESSES[index], **values)


def findings(snapshot: Snapshot, known=()) -> dict[str, str]:
    bad = judge_snapshot(snapshot, match(snapshot, known, 0), 0, 0.0).bad
    return {evidence.code: evidence.subject_id for evidence in bad}


def test_gpus_are_told_from_other_devices(bus):
    found = PCIBus(str(bus)).gpus()
    assert [one.address for one in found] == list(ADDRESSES)
    assert (found[0].driver, found[0].width, found[0].width_max, found[0].generation) == ("nvidia", 16, 16, 5)


def test_where_there_is_no_sysfs_there_is_no_information(tmp_path):
    assert PCIBus(str(tmp_path / "none")).gpus() is None


def test_a_later_look_sees_what_came_and_went(bus):
    look = PCIBus(str(bus))
    assert len(look.gpus()) == 3
    device(bus, "0000:5d:00.0")
    (bus / "0000:19:00.0").rename(bus.parent / "gone")
    assert [one.address for one in look.gpus()] == [*ADDRESSES[1:], "00000000:5d:00"]


def test_a_virtual_function_is_no_gpu_of_its_own(bus):
    (device(bus, "0000:19:00.4") / "physfn").symlink_to(bus / "0000:19:00.0")
    assert len(PCIBus(str(bus)).gpus()) == 3


def test_a_link_that_answers_all_ones_has_no_width(bus):
    (bus / "0000:19:00.0" / "current_link_width").write_text("63\n")
    (bus / "0000:19:00.0" / "current_link_speed").write_text("Unknown\n")
    assert (PCIBus(str(bus)).gpus()[0].width, PCIBus(str(bus)).gpus()[0].generation) == (None, None)


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_whatever_the_files_hold_a_look_ends(tmp_path_factory, width, speed):
    folder = tmp_path_factory.mktemp("pci") / "devices"
    path = device(folder, "0000:19:00.0")
    (path / "current_link_width").write_bytes(width)
    (path / "max_link_speed").write_bytes(speed)
    (one,) = PCIBus(str(folder)).gpus()
    assert one.width is None or 0 < one.width <= 32


def test_a_gpu_that_nvml_does_not_list_is_named_by_its_place_even_at_the_first_start(bus):
    snapshot = Snapshot(gpus=[reading(0), reading(2)], pci=PCIBus(str(bus)).gpus())
    assert findings(snapshot) == {"gpu/unlisted": "pci:00000000:3b:00"}


def test_a_gpu_that_was_given_to_another_driver_is_not_missed(bus):
    (bus / "0000:3b:00.0" / "driver").unlink()
    (bus.parent / "vfio-pci").mkdir()
    (bus / "0000:3b:00.0" / "driver").symlink_to(bus.parent / "vfio-pci")
    assert findings(Snapshot(gpus=[reading(0), reading(2)], pci=PCIBus(str(bus)).gpus())) == {}


def test_a_gpu_that_is_given_to_another_driver_while_the_node_runs_is_not_missing(bus):
    known = [GPURecord(index=index, uuid=f"GPU-{index}", pci_address=ADDRESSES[index]) for index in range(3)]
    (bus / "0000:3b:00.0" / "driver").unlink()
    (bus.parent / "vfio-pci").mkdir()
    (bus / "0000:3b:00.0" / "driver").symlink_to(bus.parent / "vfio-pci")
    given = Snapshot(gpus=[reading(0), reading(2)], pci=PCIBus(str(bus)).gpus())
    assert findings(given, known) == {}
    also_lost = Snapshot(gpus=[reading(0)], pci=PCIBus(str(bus)).gpus())
    assert findings(also_lost, known) == {"gpu/missing": "GPU-2"}


def test_a_gpu_that_can_not_be_read_at_the_first_start_is_named_by_its_place(bus):
    broken = GPUReading(index=1, errors={"nvmlDeviceGetHandleByIndex": 999})
    snapshot = Snapshot(gpus=[reading(0), broken, reading(2)], pci=PCIBus(str(bus)).gpus())
    assert findings(snapshot) == {"gpu/unreadable": "pci:00000000:3b:00"}


def test_a_gpu_that_the_inventory_knows_is_missed_by_its_uuid(bus):
    known = [GPURecord(index=index, uuid=f"GPU-{index}", pci_address=ADDRESSES[index]) for index in range(3)]
    snapshot = Snapshot(gpus=[reading(0), reading(2)], pci=PCIBus(str(bus)).gpus())
    assert findings(snapshot, known) == {"gpu/missing": "GPU-1"}


def test_the_bus_answers_for_the_link_where_nvml_does_not():
    place = PCIDevice(address=ADDRESSES[0], driver="nvidia", width=8, width_max=16)
    (filled,) = with_bus([reading(0)], [place])
    assert findings(Snapshot(gpus=[filled])) == {"pcie/width": "GPU-0"}
    (kept,) = with_bus([reading(0, pcie_width=16, pcie_width_max=16)], [place])
    assert findings(Snapshot(gpus=[kept])) == {}
    assert with_bus([reading(1)], [place]) == [reading(1)]


def test_every_generation_that_the_kernel_prints_is_known():
    assert [pci._generation(f"{speed} GT/s PCIe") for speed in ("2.5", "5.0", "8.0", "16.0", "32.0", "64.0")] == [
        *range(1, 7)
    ]
