"""What is asked of a plan and what comes of it."""

from collections.abc import Mapping

import msgspec

from outrider.api.gangplacement import RejectedAlternative
from outrider.api.why import Why
from outrider.topology import NO_ASK, TopologyAsk
from scheduler_plugin.cluster.members import Member


class Gang(msgspec.Struct, frozen=True):
    """Pods to place, and what they ask of the network. ``excluded`` are nodes that this gang has tried in vain."""

    job_uid: str
    members: tuple[Member, ...]
    excluded: frozenset[str] = frozenset()
    ask: TopologyAsk = NO_ASK


class Placement(msgspec.Struct, frozen=True):
    """The nodes by pod UID, spare nodes, and what explains the choice. ``notes`` say which wishes were not met."""

    nodes: Mapping[str, str]
    spares: tuple[str, ...] = ()
    rejected: tuple[RejectedAlternative, ...] = ()
    notes: tuple[str, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """Nothing was placed; the message says what was needed and what there is, ``why`` the same as data."""

    message: str
    rejected: tuple[RejectedAlternative, ...] = ()
    why: Why | None = None
