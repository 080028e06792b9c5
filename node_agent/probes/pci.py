"""The NVIDIA GPUs on the PCI bus, from the kernel's sysfs: what must be there whatever NVML lists.

A GPU that the driver no longer lists, or never did, is still here. No information where there is no sysfs.
Files and their form: Linux, Documentation/ABI/testing/sysfs-bus-pci.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from node_agent.probes.nvml_wire import GPUReading, PCIDevice

_NVIDIA: Final = "0x10de"
_GPU_CLASSES: Final = ("0x0302", "0x0300")  # 3D controller (data centre boards), VGA controller
_WIDTH_MAX: Final = 32  # a device off the bus answers all ones, which reads as 63 lanes
# GT/s of one lane, as the kernel prints it, to the generation of the PCI Express specification.
_GENERATIONS: Final = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}


class PCIBus:
    """Looks at one sysfs folder of devices; remembers which of them are no GPUs, so that a look costs little."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None
        self._others: set[str] = set()

    def gpus(self) -> list[PCIDevice] | None:
        """Return the GPUs by address; None where the folder can't be read."""
        if self._folder is None:
            return None
        try:
            names = sorted(entry.name for entry in self._folder.iterdir())
        except OSError:
            return None
        self._others &= set(names)
        return [_device(self._folder / name) for name in names if self._is_gpu(name)]

    def _is_gpu(self, name: str) -> bool:
        if name in self._others:
            return False
        device = self._folder / name if self._folder else Path(name)
        virtual = (device / "physfn").exists()  # a slice of a GPU that is listed itself
        if _text(device / "vendor") == _NVIDIA and _text(device / "class").startswith(_GPU_CLASSES) and not virtual:
            return True
        self._others.add(name)
        return False


def with_bus(gpus: Iterable[GPUReading], devices: Iterable[PCIDevice]) -> list[GPUReading]:
    """Return the readings with what the bus shows of a link where NVML had no answer."""
    by_address = {device.address: device for device in devices}
    return [_with_device(gpu, by_address.get(gpu.pci_address)) for gpu in gpus]


def _with_device(gpu: GPUReading, device: PCIDevice | None) -> GPUReading:
    if device is None or gpu.pcie_width is not None:
        return gpu
    return msgspec.structs.replace(
        gpu,
        pcie_width=device.width,
        pcie_width_max=device.width_max,
        pcie_generation=device.generation,
        pcie_generation_max=device.generation_max,
    )


def _device(device: Path) -> PCIDevice:
    domain, _, rest = device.name.lower().partition(":")
    driver = device / "driver"
    return PCIDevice(
        address=f"{domain:0>8}:{rest.rsplit('.', 1)[0]}",
        driver=driver.resolve().name if driver.exists() else "",
        width=_lanes(_text(device / "current_link_width")),
        width_max=_lanes(_text(device / "max_link_width")),
        generation=_generation(_text(device / "current_link_speed")),
        generation_max=_generation(_text(device / "max_link_speed")),
    )


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _lanes(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) <= _WIDTH_MAX else None


def _generation(text: str) -> int | None:
    return _GENERATIONS.get(text.partition(" ")[0])
