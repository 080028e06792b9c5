"""What the NVML child process and the agent say to each other: one JSON object a line, over pipes.

The child writes these as plain dicts (see nvml.py for why); the agent decodes and checks every answer.
"""

import msgspec


class Ask(msgspec.Struct, frozen=True):
    """The agent asks for one reading of all GPUs but those at the indices in ``skip``."""

    skip: list[int]


class GPUReading(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as NVML shows it. None: the board or driver has no such value, which is no fault."""

    index: int
    uuid: str = ""
    serial: str = ""
    pci_address: str = ""
    """Domain, bus and device, lower case, domain in eight digits: 00000000:19:00."""
    model: str = ""
    errors: dict[str, int] = {}
    """NVML return codes other than "not supported", by call."""
    recovery_action: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    ecc_uncorrected: int | None = None
    """Uncorrectable memory errors since the driver was loaded."""
    links_active: int = 0
    links_inactive: list[int] = []
    fabric_state: int | None = None


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """The child is about to read the GPU at this index; -1: it starts NVML and counts. Names what a hang hit."""

    index: int


class Read(msgspec.Struct, frozen=True, tag="read"):
    """One GPU was read."""

    gpu: GPUReading


class End(msgspec.Struct, frozen=True, tag="end"):
    """The reading is over."""

    driver_version: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """NVML as a whole can't be read: the call, its return code and NVML's words. The child then exits."""

    call: str
    code: int
    text: str


Answer = Begin | Read | End | Failed


class Hang(msgspec.Struct, frozen=True):
    """A GPU whose NVML calls do not return."""

    index: int
    seconds: float


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of the node, put together by the agent."""

    gpus: list[GPUReading] = []
    hangs: list[Hang] = []
    failed: Failed | None = None
    driver_version: str = ""
