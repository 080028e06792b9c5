"""What the NVML child process and the agent say to each other: one JSON object a line, over pipes.

The child writes these as plain dicts (see nvml.py for why); the agent decodes and checks every answer.
"""

import msgspec

Counters = dict[str, list[int | None]]
"""Error counters (and the speed) of NVLinks by name; the place in the list is the link, None where it has none."""


class Ask(msgspec.Struct, frozen=True):
    """The agent asks for one reading of all GPUs but those at the indices in ``skip``."""

    skip: list[int]


class GPUReading(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as NVML shows it. None: the board or driver has no such value, which is no fault.

    Temperatures are in celsius, power in milliwatts, clocks in MHz, utilization in percent.
    """

    index: int
    uuid: str = ""
    serial: str = ""
    pci_address: str = ""
    """Domain, bus and device, lower case, domain in eight digits: 00000000:19:00."""
    model: str = ""
    errors: dict[str, int] = {}
    """NVML return codes other than "not supported", by call; -1: an answer that the binding could not take."""
    seconds: float = 0.0
    """How long the reading took."""

    recovery_action: int | None = None
    ecc_mode: tuple[int, int] | None = None
    """Now, and after the next reset."""
    ecc_uncorrected: int | None = None
    """Uncorrectable memory errors since the driver was loaded."""
    ecc_corrected: int | None = None
    ecc_uncorrected_life: int | None = None
    """Uncorrectable memory errors in the life of the board."""
    sram_threshold_exceeded: bool | None = None
    remap_uncorrected: int | None = None
    """Rows remapped for uncorrectable errors in the life of the board."""
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    remap_banks: tuple[int, int, int, int, int] | None = None
    """Banks with all, many, some, few and no spare rows left."""
    pages_retired: tuple[int, int] | None = None
    """Pages retired for repeated corrected, and for uncorrectable errors (boards before Ampere)."""
    pages_pending: bool | None = None
    repair_pending: tuple[int, int] | None = None
    """Channel and TPC repairs that wait for a reset."""
    unrepairable: bool | None = None
    """The memory has a fault that no repair can mend."""
    inforom_corrupted: bool = False

    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    """The lesser of what board and slot can."""
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    pcie_fatal_errors: int | None = None

    utilization: int | None = None
    """Share of time with a kernel running; None with MIG on."""
    performance_state: int | None = None
    clock_sm: int | None = None
    clock_sm_max: int | None = None
    clock_reasons: int | None = None
    temperature: int | None = None
    temperature_max: int | None = None
    temperature_slowdown: int | None = None
    margin: int | None = None
    """Degrees left to the highest operating temperature (Hopper and later)."""
    margin_slowdown: int | None = None
    """Margin at which the hardware slows down, often below zero (Hopper and later)."""
    temperature_memory: int | None = None
    temperature_memory_max: int | None = None
    power: int | None = None
    power_limit: int | None = None
    """The limit in force."""
    power_limit_wanted: int | None = None
    """The limit that was set."""
    power_limit_default: int | None = None
    persistence: bool | None = None
    compute_mode: int | None = None
    mig_mode: tuple[int, int] | None = None
    """Now, and after the next reset."""
    processes: int | None = None

    links_active: int = 0
    links_inactive: list[int] = []
    link_counters: Counters = {}
    c2c_inactive: list[int] = []
    """Links between the chips of a Grace superchip that are down."""
    fabric_state: int | None = None
    fabric_status: int | None = None
    fabric_clique: int | None = None
    fabric_cluster: str = ""
    """Hexadecimal, all zeros on a node whose fabric ends within it."""
    fabric_health_mask: int | None = None
    fabric_health_summary: int | None = None


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """The child is about to read the GPU at this index; -1: it starts NVML and counts. Names what a hang hit."""

    index: int


class Read(msgspec.Struct, frozen=True, tag="read"):
    """One GPU was read."""

    gpu: GPUReading


class End(msgspec.Struct, frozen=True, tag="end"):
    """The reading is over."""

    driver_version: str
    nvml_version: str = ""
    events_code: int = 0
    """Return code that keeps NVML's events away for the present: 0 none, 3 the board or driver has no events."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """NVML as a whole can't be read: the call, its return code and NVML's words. The child then exits."""

    call: str
    code: int
    text: str


class Event(msgspec.Struct, frozen=True, tag="event"):
    """NVML reports that something happened: the event's type bit and its datum (Xid, recovery action)."""

    index: int
    uuid: str
    kind: int
    data: int


Answer = Begin | Read | End | Failed | Event


class Hang(msgspec.Struct, frozen=True):
    """A GPU whose NVML calls do not return."""

    index: int
    seconds: float


class PCIDevice(msgspec.Struct, frozen=True, kw_only=True):
    """An NVIDIA GPU on the PCI bus, as the kernel shows it."""

    address: str
    """As GPUReading.pci_address."""
    driver: str = ""
    """Kernel driver that has the device; empty where none has."""
    width: int | None = None
    width_max: int | None = None
    generation: int | None = None
    generation_max: int | None = None


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """What the readings of one GPU over the last minute show together."""

    seconds: float = 0.0
    """From the first reading of the window to the last."""
    rises: dict[str, int] = {}
    """By how much counters rose in the window, those that did; NVLink counters as ``NAME/LINK``."""
    reasons: dict[int, float] = {}
    """Share of the readings in which a clock event bit was set, 0 to 1, by bit; needs two readings."""
    loaded: int = 0
    """Readings in a row, up to the last, in which the GPU was under load."""
    slow: int = 0
    """Readings in a row, up to the last, that took long."""
    over_power: int = 0
    """Readings in a row, up to the last, with more power than the limit allows."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of the node, put together by the agent."""

    gpus: list[GPUReading] = []
    hangs: list[Hang] = []
    failed: Failed | None = None
    driver_version: str = ""
    nvml_version: str = ""
    events_code: int = 0
    pci: list[PCIDevice] | None = None
    """GPUs on the PCI bus; None: no information."""
    trends: dict[str, Trend] = {}
    """By UUID."""
    released: float | None = None
    """Seconds for which NVML is still let go, so nothing was read; None: it is not."""

    @property
    def read(self) -> bool:
        """True where NVML was read at all."""
        return self.failed is None and self.released is None
