"""What the rules about one GPU are given, and how they name what they find. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from node_agent.inventory import GPURecord
from node_agent.probes.nvml_wire import GPUReading, Trend
from outrider.api.gpunode import SubjectKind
from outrider.health.findings import Evidence, seen

SOURCE: Final = "nvml"
COUNTERS_SOURCE: Final = "nvml-counters"
"""Source of what happened once, which no good reading clears."""
_LINKS_NAMED: Final = 4  # more links of one GPU with the same trouble are the GPU's trouble

_Value = TypeVar("_Value")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at one time, and what it is compared with."""

    uuid: str
    gpu: GPUReading
    now: float
    trend: Trend = Trend()
    record: GPURecord | None = None
    siblings: Sequence[GPUReading] = ()
    """The node's other GPUs of the same model that were read well."""

    def finding(self, code: str, line: str) -> Evidence:
        """Return evidence about the GPU."""
        return seen(code, self.now, subject=SubjectKind.GPU, subject_id=self.uuid, line=line, source=SOURCE)

    def of_links(self, code: str, links: Iterable[int], line: str) -> Iterator[Evidence]:
        """Yield evidence about each link, or about the GPU where many links show the same."""
        numbers = sorted(links)
        if len(numbers) > _LINKS_NAMED:
            yield self.finding(code, f"NVLinks {', '.join(map(str, numbers))}: {line}")
            return
        for link in numbers:
            name = f"{self.uuid}/{link}"
            text = f"NVLink {link}: {line}"
            yield seen(code, self.now, subject=SubjectKind.LINK, subject_id=name, line=text, source=SOURCE)


def usual(values: Iterable[_Value | None]) -> _Value | None:
    """Return the value that most siblings have; None where fewer than two tell one."""
    told = [value for value in values if value is not None]
    return Counter(told).most_common(1)[0][0] if len(told) >= 2 else None
