"""What dcgm-exporter's page says about the GPUs beside what NVML says. Pure but for its memory of the last pages.

Fields are known by DCGM's number: names changed over releases, so a number stands for all its names.
What NVML tells too is only cross-checked: it becomes a finding where NVML does not say the same of that GPU.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from node_agent.inventory import GPURecord
from node_agent.probes.report import States
from node_agent.readings.exposition import Sample, read_samples
from node_agent.readings.kubelet import UNUSABLE
from node_agent.readings.nvml.pcie import REPLAYS_PER_LANE
from node_agent.readings.rises import Rises
from outrider.api.gpunode import SubjectKind
from outrider.health.catalogue import XID_PREFIX, Catalogue, Clears
from outrider.health.findings import Evidence, seen

SOURCE: Final = "dcgm"
_CLOCK, _TEMPERATURE, _POWER, _ENERGY, _REPLAYS, _UTILIZATION, _XID = 100, 150, 155, 156, 202, 203, 230
_GENERATION_MAX, _WIDTH_MAX, _MEMORY_USED, _DOUBLE_BIT, _SRAM = 235, 236, 252, 311, 346
_REMAP_FAILED, _REMAP_PENDING = 395, 396
_P: Final = "DCGM_FI_DEV_"
# DCGM 4 renamed many fields; dcgm-exporter follows its DCGM. The old name first.
FIELDS: Final[Mapping[int, tuple[str, ...]]] = {
    _CLOCK: (f"{_P}SM_CLOCK",),
    _TEMPERATURE: (f"{_P}GPU_TEMP", f"{_P}GPU_TEMP_CELSIUS"),
    _POWER: (f"{_P}POWER_USAGE", f"{_P}BOARD_POWER_WATTS"),
    _ENERGY: (f"{_P}TOTAL_ENERGY_CONSUMPTION",),
    _REPLAYS: (f"{_P}PCIE_REPLAY_COUNTER", f"{_P}PCIE_REPLAY_TOTAL"),
    _UTILIZATION: (f"{_P}GPU_UTIL", f"{_P}GPU_UTIL_RATIO"),
    _XID: (f"{_P}XID_ERRORS", f"{_P}XID_ERROR"),
    _GENERATION_MAX: (f"{_P}PCIE_MAX_LINK_GEN",),
    _WIDTH_MAX: (f"{_P}PCIE_MAX_LINK_WIDTH",),
    _MEMORY_USED: (f"{_P}FB_USED",),
    _DOUBLE_BIT: (f"{_P}ECC_DBE_VOL_TOTAL",),
    _SRAM: (f"{_P}THRESHOLD_SRM", f"{_P}SRAM_EXCEEDED"),
    _REMAP_FAILED: (f"{_P}ROW_REMAP_FAILURE", f"{_P}ROW_REMAP_FAILED"),
    _REMAP_PENDING: (f"{_P}ROW_REMAP_PENDING",),
    409: (f"{_P}NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", f"{_P}NVLINK_CRC_FLIT_ERROR_TOTAL"),
    419: (f"{_P}NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", f"{_P}NVLINK_CRC_DATA_ERROR_TOTAL"),
    429: (f"{_P}NVLINK_REPLAY_ERROR_COUNT_TOTAL", f"{_P}NVLINK_REPLAY_ERROR_TOTAL"),
    439: (f"{_P}NVLINK_RECOVERY_ERROR_COUNT_TOTAL", f"{_P}NVLINK_RECOVERY_ERROR_TOTAL"),
    497: (f"{_P}NVLINK_ERROR_DL_CRC", f"{_P}NVLINK_CRC_ERROR_TOTAL"),
    498: (f"{_P}NVLINK_ERROR_DL_RECOVERY", f"{_P}NVLINK_RECOVERY_TOTAL"),
    499: (f"{_P}NVLINK_ERROR_DL_REPLAY", f"{_P}NVLINK_REPLAY_TOTAL"),
}
_NUMBERS: Final = {name: number for number, names in FIELDS.items() for name in names}
_CRC: Final = (409, 419, 497)
_RETRIES: Final = (429, 439, 498, 499)  # replays and recoveries
_BLANK: Final = 2.0**47  # dcgm_structs.h: DCGM_FP64_BLANK; the 64-bit integers' blanks are far above it
_BLANK_32: Final = range(0x7FFFFFF0, 0x80000000)  # DCGM_INT32_BLANK, _NOT_FOUND, _NOT_SUPPORTED, _NOT_PERMISSIONED
_WINDOW_SECONDS: Final = 60.0
_BEST_LINK: Final = (5, 16)  # where the page does not tell: the mildest limit of the boards in use
_CRC_PER_SECOND: Final = 100.0  # DCGM's health watch fails a link from here on, and warns below
_SILENT_SECONDS: Final = 90.0  # three periods of the exporter: one page may come while it collects
# A GPU's energy counter rises all the time, so one that stands still for ten periods of the exporter is an old value.
_STALE_SECONDS: Final = 300.0
_XID_SECONDS: Final = 10.0  # the kernel log is read within milliseconds, but maybe not yet at the start

# What NVML or the kernel log call the same fault: code prefixes.
_SAME: Final = {
    "dcgm/remap-failure": ("remap/failure", "xid/64"),
    "dcgm/remap-pending": ("remap/pending", "memory/"),
    "dcgm/ecc-uncorrected": ("ecc/", "xid/48", "xid/94", "xid/95"),
    "dcgm/sram-threshold": ("ecc/sram",),
    "dcgm/pcie-replays": ("pcie/",),
    "dcgm/nvlink-errors": ("nvlink/", "xid/74"),
    "dcgm/nvlink-crc": ("nvlink/", "xid/74"),
}

Values = dict[int, float]
"""Field number to value; blank ones are absent."""


def read_page(page: str, addresses: Mapping[str, str]) -> dict[str, Values]:
    """Return the values of each GPU by UUID. ``addresses``: UUID by PCI address without function, as NVML writes it.

    Of MIG instances, which are samples of their own, the highest value counts.
    """
    gpus: dict[str, Values] = {}
    for sample in read_samples(page, _NUMBERS):
        values = gpus.setdefault(_uuid(sample, addresses), {})
        number = _NUMBERS[sample.name]
        if not _is_blank(sample.value):
            values[number] = max(sample.value, values.get(number, sample.value))
    gpus.pop("", None)
    return gpus


def _uuid(sample: Sample, addresses: Mapping[str, str]) -> str:
    labels = sample.labels
    address = labels.get("pci_bus_id", "").lower().rpartition(".")[0]
    return labels.get("UUID") or labels.get("uuid") or addresses.get(address, "")


def _is_blank(value: float) -> bool:
    return not math.isfinite(value) or value >= _BLANK or value < 0 or int(value) in _BLANK_32


class DCGMWatch:
    """Judges one page after the other. Times are monotonic seconds, but for ``wall``, which is seconds since 1970."""

    def __init__(self) -> None:
        self._rises = Rises(_WINDOW_SECONDS)
        self._silent: dict[str, float] = {}
        self._energy: dict[str, tuple[float, float]] = {}
        self._logged: dict[str, set[int]] = {}
        self._xids: dict[str, tuple[int, float]] = {}

    def judge(
        self,
        gpus: Mapping[str, Values],
        inventory: Iterable[GPURecord],
        findings: Collection[Evidence],
        catalogue: Catalogue,
        now: float,
        wall: float,
    ) -> States:
        """Return what a page shows of the GPUs that NVML lists, those aside that NVML itself can't read."""
        bad, readable = list[Evidence](), {""}
        for record in inventory:
            own = [evidence for evidence in findings if evidence.owner == record.uuid]
            if any(evidence.code in UNUSABLE for evidence in own):
                continue
            values = gpus.get(record.uuid, {})
            silence = self._silence(record.uuid, values, now)
            if silence is None:
                readable.add(record.uuid)
                faults = [*self._faults(record.uuid, values, now), *self._xid(record.uuid, values, own, catalogue, now)]
                bad += [_evidence(record.uuid, *fault, wall) for fault in faults if not _told(fault[0], own)]
            elif silence:
                bad.append(_evidence(record.uuid, "dcgm/blank", silence, wall))
        return States(bad=tuple(bad), readable=frozenset(readable))

    def _silence(self, uuid: str, values: Values, now: float) -> str | None:
        """Return None where the page shows the GPU as it is now, else why not; empty while that may still pass."""
        if not values:
            since = self._silent.setdefault(uuid, now)
            return f"DCGM shows no value of this GPU for {now - since:.0f} s" if now - since >= _SILENT_SECONDS else ""
        self._silent.pop(uuid, None)
        energy = values.get(_ENERGY)
        if energy is None:
            return None
        last, since = self._energy.get(uuid, (math.nan, now))
        if energy != last:
            self._energy[uuid] = (energy, now)
            return None
        if now - since < _STALE_SECONDS:
            return None
        return f"DCGM's values of this GPU are old: its energy counter stands still for {now - since:.0f} s"

    def _faults(self, uuid: str, values: Values, now: float) -> Iterator[tuple[str, str]]:
        """Yield code and evidence line of each fault."""
        if values.get(_REMAP_FAILED):
            yield "dcgm/remap-failure", "DCGM shows a failed row remap, NVML does not"
        if values.get(_REMAP_PENDING):
            yield "dcgm/remap-pending", "DCGM shows a row remap that waits for a reset, NVML does not"
        if errors := values.get(_DOUBLE_BIT):
            yield "dcgm/ecc-uncorrected", f"DCGM shows {errors:.0f} uncorrectable memory errors, NVML shows none"
        if values.get(_SRAM):
            yield "dcgm/sram-threshold", "DCGM shows that the SRAM error threshold was exceeded, NVML does not"
        limit = _replay_limit(values)
        if (replays := self._rise(uuid, values, (_REPLAYS,), now)) > limit:
            yield "dcgm/pcie-replays", f"{replays:.0f} PCIe replays in a minute, {limit} are normal for the link"
        crc = self._rise(uuid, values, _CRC, now)
        if crc >= _CRC_PER_SECOND * _WINDOW_SECONDS:
            yield "dcgm/nvlink-crc", f"{crc / _WINDOW_SECONDS:.0f} NVLink checksum errors a second"
        elif (retries := self._rise(uuid, values, _RETRIES, now) + crc) >= 1:
            yield "dcgm/nvlink-errors", f"{retries:.0f} NVLink replays, recoveries or checksum errors in a minute"

    def _rise(self, uuid: str, values: Values, numbers: Iterable[int], now: float) -> float:
        return sum(
            self._rises.note(f"{uuid}/{number}", int(values[number]), now) for number in numbers if number in values
        )

    def _xid(
        self, uuid: str, values: Values, own: Iterable[Evidence], catalogue: Catalogue, now: float
    ) -> Iterator[tuple[str, str]]:
        """Yield the GPU's last Xid where the kernel log never showed it there.

        The gauge keeps its value for ever, so what the log showed is remembered, and after a start of the agent an
        Xid whose finding may have faded meanwhile counts as shown.
        """
        logged = self._logged.setdefault(uuid, set())
        logged |= {xid for evidence in own if (xid := _xid_of(evidence.code))}
        xid = int(values.get(_XID, 0))
        before = self._xids.get(uuid)
        if before is None or before[0] != xid:
            self._xids[uuid] = (xid, now)
            if before is None and catalogue.of(f"{XID_PREFIX}{xid}").clears is Clears.TIME:
                logged.add(xid)
        if xid and xid not in logged and now - self._xids[uuid][1] >= _XID_SECONDS:
            yield "dcgm/xid-only", f"DCGM's last Xid of this GPU is {xid}, which the kernel log does not show"


def _xid_of(code: str) -> int:
    """Return the number in xid/74 or xid/74.memory, 0 in other codes."""
    number = code.removeprefix(XID_PREFIX).partition(".")[0]
    return int(number) if code.startswith(XID_PREFIX) and number.isascii() and number.isdecimal() else 0


def _replay_limit(values: Values) -> int:
    """Of the best that the link can do: of its present speed, a link that fell back would lower its own limit."""
    generation, width = int(values.get(_GENERATION_MAX, 0)), int(values.get(_WIDTH_MAX, 0))
    if generation not in REPLAYS_PER_LANE or not width:
        generation, width = _BEST_LINK
    return math.ceil(REPLAYS_PER_LANE[generation] * width)


def _told(code: str, own: Iterable[Evidence]) -> bool:
    """True where another source says the same of the GPU."""
    prefixes = _SAME.get(code, ())
    return any(evidence.source != SOURCE and evidence.code.startswith(prefixes) for evidence in own if prefixes)


def _evidence(uuid: str, code: str, line: str, wall: float) -> Evidence:
    return seen(code, wall, subject=SubjectKind.GPU, subject_id=uuid, line=line, source=SOURCE)
