"""Outrider's taint: it keeps new work off a node, and its value names the reason."""

import re
from typing import Final

from outrider.api.core import Node, Taint
from outrider.api.names import UNHEALTHY_TAINT

EFFECT: Final = "NoSchedule"
_VALUE_MAX: Final = 63  # characters: a taint's value has the syntax of a label's
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9._-]+")


def taint_for(reason: str) -> Taint:
    """Return the taint for a reason such as xid/79: alike whoever writes it, so a node never gets a second one."""
    value = _NOT_ALLOWED.sub("-", reason)[:_VALUE_MAX].strip("-._") or "unhealthy"
    return Taint(key=UNHEALTHY_TAINT, value=value, effect=EFFECT)


def taint_of(node: Node) -> Taint | None:
    """Return Outrider's taint on the node, whatever its effect: a person may have made it stronger."""
    return next((taint for taint in node.spec.taints if taint.key == UNHEALTHY_TAINT), None)
