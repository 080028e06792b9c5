"""Repeat offenders: GPUs that fail hard again and again, remembered by serial number. Pure.

An episode starts when a GPU's verdict becomes hard and it had not been hard for EPISODE_GAP_SECONDS: a fault that comes
back within it was never gone. The memory lives on the node's disk, so neither a reboot nor a new name of the node
clears it, and goes by serial number, so neither does another slot.

Rules, mild before hard: the third episode within 7 days keeps new work off the GPU and asks for an inspection (gpud:
two reboots, then inspect the hardware); the fifth asks for a new board (NVSentinel: 5 remediations within 7 days).
For a new board only those episodes count in which the board failed alone: what several GPUs of a node have at once
comes from what they share, such as a switch, power or the node itself, and new boards would not help.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from outrider.api.gpunode import OFFENDERS_MAX, SubjectKind
from outrider.health.findings import Evidence, Time, seen

REPEAT_OFFENDER: Final = "gpu/repeat-offender"
LEMON: Final = "gpu/lemon"
SOURCE: Final = "offenders"
WINDOW_SECONDS: Final = 7 * 86_400.0
TOGETHER_SECONDS: Final = 60.0  # a fault that GPUs share shows on the last of them after a reading or two of NVML
EPISODE_GAP_SECONDS: Final = 600.0  # NVSentinel joins what comes within 3 minutes; a reboot of a GPU node takes longer
_OFTEN: Final = 3
_HOPELESS: Final = 5
_TIMES_MAX: Final = 16


class Offender(msgspec.Struct, frozen=True, kw_only=True):
    """The hard faults of one board. Nothing in it moves while a fault lasts."""

    serial: str
    """Serial number of the board; UUID of the GPU where it has none."""
    episodes: Annotated[list[Time], msgspec.Meta(min_length=1, max_length=_TIMES_MAX)]
    """When each episode began, oldest first."""
    reason: str
    """Code that started the last one."""
    ended: Time | None = None
    """When the last episode ended; None while it lasts."""

    def recent(self, now: float) -> list[float]:
        """Return when the episodes of the last 7 days began; the one that lasts is one, however long ago it began."""
        *earlier, last = self.episodes
        lasts = self.ended is None or now - last < WINDOW_SECONDS
        return [began for began in earlier if now - began < WINDOW_SECONDS] + [last] * lasts


def remembered(known: Iterable[Offender], hard: Mapping[str, str], now: float) -> list[Offender]:
    """Return the memory after a look at ``now``. ``hard`` maps the serial of each GPU in a hard state to the reason."""
    boards = {board.serial: _later(_not_to_come(board, now), hard, now) for board in known}
    for serial, reason in hard.items():
        boards.setdefault(serial, Offender(serial=serial, episodes=[now], reason=reason))
    recent = [board for board in boards.values() if board.recent(now)]
    latest = sorted(recent, key=lambda board: (-board.episodes[-1], board.serial))[:OFFENDERS_MAX]
    return sorted(latest, key=lambda board: board.serial)


def _not_to_come(board: Offender, now: float) -> Offender:
    """Return the board with times that are yet to come (the clock was set back) as of now."""
    if board.episodes[-1] <= now and (board.ended is None or board.ended <= now):
        return board
    ended = board.ended if board.ended is None else min(board.ended, now)
    return msgspec.structs.replace(board, episodes=[min(began, now) for began in board.episodes], ended=ended)


def _later(board: Offender, hard: Mapping[str, str], now: float) -> Offender:
    if board.serial not in hard:
        return board if board.ended is not None else msgspec.structs.replace(board, ended=now)
    if board.ended is None:
        return board
    if now - board.ended < EPISODE_GAP_SECONDS:
        return msgspec.structs.replace(board, ended=None)
    episodes = [*board.episodes, now][-_TIMES_MAX:]
    return msgspec.structs.replace(board, episodes=episodes, reason=hard[board.serial], ended=None)


def after_boot(known: Iterable[Offender]) -> list[Offender]:
    """Return the memory after a reboot of the node: what fails again from now on was not helped by it."""
    return [msgspec.structs.replace(board, ended=0.0) for board in known]


def repeated(known: Iterable[Offender], gpus: Mapping[str, str], now: float) -> list[Evidence]:
    """Return a finding for each GPU of the node that failed too often. ``gpus`` maps UUIDs to serials."""
    boards = {board.serial: board for board in known}
    often = {serial: board for serial, board in boards.items() if len(board.recent(now)) >= _OFTEN}
    return [_repeated(uuid, often[serial], boards.values(), now) for uuid, serial in gpus.items() if serial in often]


def _repeated(uuid: str, board: Offender, boards: Iterable[Offender], now: float) -> Evidence:
    episodes = board.recent(now)
    others = [began for other in boards if other.serial != board.serial for began in other.episodes]
    alone = [began for began in episodes if all(abs(began - other) > TOGETHER_SECONDS for other in others)]
    code = LEMON if len(alone) >= _HOPELESS else REPEAT_OFFENDER
    shared = len(episodes) - len(alone)
    line = f"{len(episodes)} hard faults within 7 days, {shared} of them together with other GPUs, last {board.reason}"
    return seen(code, board.episodes[-1], subject=SubjectKind.GPU, subject_id=uuid, line=line, source=SOURCE)
