"""The roles of a gang, in rank order: how many pods each has, when they come, and which of them belong together."""

from collections.abc import Iterator, Sequence

import msgspec

from outrider.api.core import PodTemplate
from outrider.workloads.membership import placed_by_us
from outrider.workloads.model import BEFORE, NO_SEGMENT, Seat, Size


class Role(msgspec.Struct, frozen=True):
    """Equal pods of a gang. ``least`` of them are enough where the gang is elastic (None: all).

    Pods come in blocks of ``block`` (0: all are one block); with ``led`` the first pod of each block must be scheduled
    before the others exist. ``segment`` is the number of the segment that the first block is (NO_SEGMENT: none);
    ``shift`` pods more than the role's own are in it.
    """

    name: str
    pods: int
    template: PodTemplate | None = None
    stage: int = 0
    least: int | None = None
    block: int = 0
    led: bool = False
    segment: int = NO_SEGMENT
    shift: int = 0

    @property
    def last_stage(self) -> int:
        """Stage of the pods that come last."""
        return self.stage + 1 if self.led and (self.block or self.pods) > 1 else self.stage

    def stage_of(self, index: int) -> int:
        """Return the stage of one of the role's pods."""
        follows = index % self.block if self.block else index
        return self.stage + 1 if self.led and follows else self.stage

    def segment_of(self, index: int) -> int:
        """Return the segment of one of the role's pods."""
        if self.segment == NO_SEGMENT:
            return NO_SEGMENT
        return self.segment + ((index + self.shift) // self.block if self.block else 0)


def counted(roles: Sequence[Role]) -> tuple[Role, ...]:
    """Return the roles whose pods the gang is made of.

    Pods that end before it starts are not, nor those that the scheduler plugin does not place (a launcher or head
    without GPUs), unless there are no others.
    """
    together = tuple(role for role in roles if role.stage != BEFORE and role.pods > 0)
    ours = tuple(role for role in together if role.template is None or placed_by_us(role.template.spec))
    return ours or together


def size_from(roles: Sequence[Role], least: int | None = None) -> Size:
    """Return the size of a gang of these roles. ``least`` is the owner's own word for all its pods, if it has one."""
    members = counted(roles)
    pods = sum(role.pods for role in members)
    if pods <= 0:
        return Size(0, "the job asks for no pods")
    if least is None:
        floor = max(sum(role.pods if role.least is None else role.least for role in members), 1)
    else:
        floor = least - sum(role.pods for role in roles if role not in members)
    return Size(pods, min=floor if 0 < floor < pods else 0)


def rank_in(roles: Sequence[Role], name: str, index: int) -> int | None:
    """Return the rank of a role's pod, None where the gang has no such pod.

    The last role may have more pods than it asks for at once (an Indexed Job that works in waves).
    """
    members, before = counted(roles), 0
    for role in members:
        if role.name == name:
            return before + index if index < role.pods or role is members[-1] else None
        before += role.pods
    return None


def role_named(roles: Sequence[Role], name: str) -> Role | None:
    """Return the role of that name, if there is one."""
    return next((role for role in roles if role.name == name), None)


def seats(roles: Sequence[Role]) -> Iterator[Seat]:
    """Yield every pod of the gang in rank order."""
    rank = 0
    for role in counted(roles):
        spec = role.template.spec if role.template else None
        for index in range(role.pods):
            yield Seat(rank, role.name, role.stage_of(index), role.segment_of(index), spec)
            rank += 1
