"""Memory: ECC, remapped rows, retired pages, repairs, InfoROM. Pure.

Limits come from NVIDIA's memory guide (512 remapped rows, spare rows of a bank) and, for boards before Ampere, from
DCGM's policy of 63 retired pages.
"""

from collections.abc import Iterator
from typing import Final

from node_agent.readings.nvml.look import Look
from outrider.health.findings import Evidence

_ROWS_MAX: Final = 512
_PAGES_MAX: Final = 63
_DOUBLE_BIT_PAGES: Final = 15
_CORRECTED_PER_MINUTE: Final = 100  # our own: above it the driver itself starts to speak of a high rate (Xid 92)


def bad(look: Look) -> Iterator[Evidence]:
    """Yield the faults of the GPU's memory."""
    yield from _errors(look)
    yield from _rows(look)
    yield from _pages(look)
    if look.gpu.repair_pending and any(look.gpu.repair_pending):
        channel, tpc = look.gpu.repair_pending
        yield look.finding("memory/repair-pending", f"repairs that wait for a reset: channel {channel}, TPC {tpc}")
    if look.gpu.unrepairable:
        yield look.finding("memory/unrepairable", "NVML: the memory has a fault that no repair can mend")
    if look.gpu.inforom_corrupted:
        yield look.finding("gpu/inforom", "NVML: nvmlDeviceGetInforomVersion answers 14 (corrupted InfoROM)")


def _errors(look: Look) -> Iterator[Evidence]:
    gpu, rises = look.gpu, look.trend.rises
    if gpu.ecc_uncorrected:
        line = f"{gpu.ecc_uncorrected} uncorrectable memory errors since the driver was loaded"
        yield look.finding("ecc/uncorrected", line)
    if gpu.sram_threshold_exceeded:
        yield look.finding("ecc/sram-threshold", "NVML: the threshold of uncorrectable SRAM errors is exceeded")
    if rises.get("ecc_corrected", 0) >= _CORRECTED_PER_MINUTE:
        yield look.finding("ecc/corrected-rate", f"{rises['ecc_corrected']} corrected memory errors within a minute")
    if gpu.ecc_mode and not gpu.ecc_mode[0]:
        yield look.finding("ecc/off", "ECC is switched off")
    if gpu.ecc_mode and gpu.ecc_mode[0] != gpu.ecc_mode[1]:
        yield look.finding("ecc/pending", f"ECC will be {'on' if gpu.ecc_mode[1] else 'off'} after the next reset")


def _rows(look: Look) -> Iterator[Evidence]:
    gpu = look.gpu
    if gpu.remap_failure:
        yield look.finding("remap/failure", "NVML reports that a row remap failed")
    if gpu.remap_pending:
        yield look.finding("remap/pending", "NVML reports a row remap that waits for a reset")
    if gpu.remap_uncorrected and gpu.remap_uncorrected >= _ROWS_MAX:
        line = f"{gpu.remap_uncorrected} rows remapped for uncorrectable errors, {_ROWS_MAX} are the limit"
        yield look.finding("remap/uncorrectable", line)
    if gpu.remap_banks:
        *_, low, none = gpu.remap_banks
        if none:
            yield look.finding("remap/banks-none", f"{none} memory banks have no spare row left")
        elif low:
            yield look.finding("remap/banks-low", f"{low} memory banks have few spare rows left")


def _pages(look: Look) -> Iterator[Evidence]:
    gpu = look.gpu
    if gpu.pages_pending:
        yield look.finding("pages/pending", "a memory page waits for a reboot to be retired")
    if gpu.pages_retired is None:
        return
    single, double = gpu.pages_retired
    if single + double >= _PAGES_MAX:
        yield look.finding("pages/limit", f"{single + double} memory pages retired, {_PAGES_MAX} are the limit")
    elif double > _DOUBLE_BIT_PAGES:
        yield look.finding("pages/many", f"{double} memory pages retired for uncorrectable errors")
