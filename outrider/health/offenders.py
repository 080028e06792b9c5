"""Repeat offenders: GPUs that fail hard again and again, remembered by serial number. Pure.

An episode starts when a GPU's verdict becomes hard and it had not been hard for EPISODE_GAP_SECONDS: a fault that comes
back within it was never gone. The memory lives on the node's disk, so neither a reboot nor a new name of the node
clears it, and goes by serial number, so neither does another slot.

Rules, mild before hard: the third episode within 7 days keeps new work off the GPU and asks for an inspection (gpud:
two reboots, then inspect the hardware); the fifth asks for a new board (NVSentinel: 5 remediations within 7 days).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from outrider.api.gpunode import OFFENDERS_MAX, SubjectKind
from outrider.health.findings import Evidence, Time, seen

REPEAT_OFFENDER: Final = "gpu/repeat-offender"
LEMON: Final = "gpu/lemon"
SOURCE: Final = "offenders"
WINDOW_SECONDS: Final = 7 * 86_400.0
EPISODE_GAP_SECONDS: Final = 600.0  # NVSentinel joins what comes within 3 minutes; a reboot of a GPU node takes longer
_REPEATED: Final = 3
_HOPELESS: Final = 5
_TIMES_MAX: Final = 16


class Offender(msgspec.Struct, frozen=True, kw_only=True):
    """The hard faults of one board."""

    serial: str
    """Serial number of the board; UUID of the GPU where it has none."""
    episodes: Annotated[list[Time], msgspec.Meta(max_length=_TIMES_MAX)]
    """When each episode began, oldest first."""
    hard_at: Time
    """When the board was last seen to be in a hard state."""
    reason: str
    """Code that decided last."""


def remembered(known: Iterable[Offender], hard: Mapping[str, str], now: float) -> list[Offender]:
    """Return the memory after a look at ``now``. ``hard`` maps the serial of each GPU in a hard state to the reason."""
    boards = {board.serial: board for board in known}
    for serial, reason in hard.items():
        boards[serial] = _again(boards.get(serial), serial, reason, now)
    kept = [_recent(board, now) for board in boards.values()]
    worst = sorted((board for board in kept if board.episodes), key=lambda board: (-board.hard_at, board.serial))
    return sorted(worst[:OFFENDERS_MAX], key=lambda board: board.serial)


def _again(board: Offender | None, serial: str, reason: str, now: float) -> Offender:
    if board is None:
        return Offender(serial=serial, episodes=[now], hard_at=now, reason=reason)
    anew = now - board.hard_at >= EPISODE_GAP_SECONDS or not board.episodes
    episodes = [*board.episodes, now][-_TIMES_MAX:] if anew else board.episodes
    return Offender(serial=serial, episodes=episodes, hard_at=max(now, board.hard_at), reason=reason)


def _recent(board: Offender, now: float) -> Offender:
    """Leave out what is older than the window; the episode that lasts stays, however long ago it began."""
    lasting = board.episodes[-1:] if now - board.hard_at < EPISODE_GAP_SECONDS else []
    recent = [began for began in board.episodes if now - began < WINDOW_SECONDS]
    return msgspec.structs.replace(board, episodes=recent or lasting)


def repeated(known: Iterable[Offender], gpus: Mapping[str, str], now: float) -> list[Evidence]:
    """Return a finding for each GPU of the node that failed too often. ``gpus`` maps UUIDs to serials."""
    boards = {board.serial: _recent(board, now) for board in known}
    failed = ((uuid, boards[serial]) for uuid, serial in gpus.items() if serial in boards)
    return [_repeated(uuid, board.episodes, now) for uuid, board in failed if len(board.episodes) >= _REPEATED]


def _repeated(uuid: str, episodes: Sequence[float], now: float) -> Evidence:
    code = LEMON if len(episodes) >= _HOPELESS else REPEAT_OFFENDER
    line = f"{len(episodes)} hard faults within 7 days"
    return seen(code, now, subject=SubjectKind.GPU, subject_id=uuid, line=line, source=SOURCE)
