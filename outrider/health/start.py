"""When the driver can start none of a node's GPUs, driver, firmware or node is at fault, not each board. Pure.

A driver that does not fit its firmware or its library fails all boards alike, within the minutes that it tries them in.
Resets would repair nothing then, so the node gets one finding, and those on its GPUs follow it.
"""

from collections.abc import Iterable
from typing import Final

from outrider.api.gpunode import SubjectKind
from outrider.health.findings import Evidence, seen

FAILED: Final = "kernel/init-failed"  # one GPU
ALL_FAILED: Final = "driver/init-failed"  # all of the node
SOURCE: Final = "start"
TOGETHER_SECONDS: Final = 600.0  # the driver tries board after board, and one may take a minute


def all_failed(findings: Iterable[Evidence], gpus: int) -> list[Evidence]:
    """Return the node's finding where the driver could start none of its GPUs.

    ``gpus`` is how many are known: those that failed may be known by PCI address only. One board alone is a board's
    fault, whether or not others are known.
    """
    failed = [one for one in findings if one.code == FAILED and one.subject is SubjectKind.GPU]
    if len(failed) < max(2, gpus):
        return []
    first, last = [one.first_seen for one in failed], [one.last_seen for one in failed]
    if min(max(first) - min(first), max(last) - min(last)) > TOGETHER_SECONDS:
        return []
    line = f"all {len(failed)} GPUs: {max(failed, key=lambda one: (one.last_seen, one.key)).line}"
    return [seen(ALL_FAILED, min(first), line=line, source=SOURCE)]
