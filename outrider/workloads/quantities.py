"""Kubernetes quantities ("8", "500m", "2Gi", "1e3") as exact integers of thousandths."""

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Final

# Suffixes of apimachinery's resource.Quantity: binary, decimal, and the exponent form matched below.
_SUFFIXES: Final = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_QUANTITY: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)")
_MOST: Final = 2**63 - 1  # Quantity.MilliValue is an int64
_LONGEST: Final = 64  # characters; the API server's canonical form is far shorter


class BadQuantity(ValueError):
    """Text that is not a Kubernetes quantity."""


@lru_cache(maxsize=4096)
def milli(text: str) -> int:
    """Return a quantity in thousandths, rounded up as the scheduler does (Quantity.MilliValue).

    What is beyond its range counts as the largest amount there is, or the smallest.

    Raises BadQuantity, whose message holds the text.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise BadQuantity(f"not a quantity: {text[:_LONGEST]!r} (write it as 8, 500m or 2Gi)")
    number, exponent, suffix = match.groups()
    scale = Decimal(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""]
    thousandths = (Decimal(number) * scale * 1000).to_integral_value(ROUND_CEILING)
    return max(-_MOST, min(_MOST, int(thousandths)))
