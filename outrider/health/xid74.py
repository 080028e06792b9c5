"""Reads the seven registers that end a line of Xid 74 (NVLink up to version 4).

The bits tell a retried packet from a dying link. Registers are counted from 0; those with numbers 0, 2, 3 and 4 carry
meaning (NVIDIA's Xid catalogue, WORKFLOW_NVLINK_ERR), the others hold data for NVIDIA's own tools.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

_REGISTERS: Final = re.compile(r"\((0x[0-9a-fA-F]{1,8}(?:\s{0,4},\s{0,4}0x[0-9a-fA-F]{1,8}){6})\s{0,4}\)", re.ASCII)


class Kind(StrEnum):
    """What set bits mean, gravest first."""

    HARDWARE = "hardware"
    MEMORY = "memory"
    SIGNAL = "signal-integrity"
    REPEATED = "counts if repeated"
    UNLISTED = "not listed"
    SECONDARY = "secondary"
    MINOR = "minor"


_BITS: Final[dict[int, dict[Kind, tuple[int, ...]]]] = {
    0: {
        Kind.MINOR: (0, 23, 30),
        Kind.SECONDARY: (1, 20),
        Kind.MEMORY: (4, 5),
        Kind.HARDWARE: (8, 9, 12, 16, 17, 24, 28),
        Kind.SIGNAL: (21, 22),
        Kind.REPEATED: (27, 29),
    },
    2: {Kind.MEMORY: (0, 1, 2, 6), Kind.REPEATED: (13, 16, 17, 18, 19)},
    3: {Kind.SECONDARY: (16, 17), Kind.REPEATED: (18,)},  # 18 wants the fabric reset, whatever else is set
    4: {Kind.MEMORY: (18, 19, 21, 22, 24, 25, 27, 28), Kind.MINOR: (20, 23, 26, 29)},
}
_KINDS: Final = {
    (register, bit): kind for register, kinds in _BITS.items() for kind, bits in kinds.items() for bit in bits
}
_ORDER: Final = list(Kind)


class Reading(msgspec.Struct, frozen=True):
    """``kind`` is None where the line has no seven registers, or where none of their bits is set."""

    kind: Kind | None
    detail: str


def read(message: str) -> Reading:
    """Return what the registers of the line say: the gravest kind of any bit, and all bits with their kinds."""
    found = _REGISTERS.search(message)
    if found is None:
        return Reading(None, "no seven registers that can be read")
    words = [int(word, 16) for word in found[1].split(",")]
    bits = list(_set_bits(words))
    kinds = [_KINDS.get(bit, Kind.UNLISTED) for bit in bits]
    said = ", ".join(f"{register}:{bit} {kind}" for (register, bit), kind in zip(bits, kinds, strict=True))
    return Reading(min(kinds, key=_ORDER.index, default=None), f"register:bit {said}" if said else "no bit is set")


def _set_bits(words: list[int]) -> Iterator[tuple[int, int]]:
    for register in _BITS:
        for bit in range(32):
            if words[register] >> bit & 1:
                yield register, bit
