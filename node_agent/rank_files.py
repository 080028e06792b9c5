"""Files of the in-pod contract, in a folder that an untrusted pod can write to.

The pod may put anything there: links to the host's files, pipes, folders, gigabytes, garbage, a million names. So only
regular files are opened, relative to the folder's own descriptor, without following links or waiting, up to a size.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from node_agent.metrics import RANK_FILE_ERRORS
from outrider.api import beacon
from outrider.api.beacon import Beacon
from outrider.api.checkpoint import CheckpointDone, CheckpointRequest
from outrider.api.names import CHECKPOINT_DONE_PREFIX, CHECKPOINT_REQUEST_FILE, RANK_FILE_PREFIX

_NAMES_MAX: Final = 1024  # names looked at in one folder; a node has far fewer ranks
_RANKS_MAX: Final = 64  # of one pod, which has one for each of its GPUs; more would crowd out the ranks of other pods
_JSON_BYTES_MAX: Final = 16 * 1024
_RANK_FILE: Final = re.compile(re.escape(RANK_FILE_PREFIX) + r"(0|[1-9]\d{0,6})")
_DONE_FILE: Final = re.compile(re.escape(CHECKPOINT_DONE_PREFIX) + r"(0|[1-9]\d{0,6})")
_TEMPORARY: Final = f".{CHECKPOINT_REQUEST_FILE}.partial"
_NO_TRICKS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOR_ALL: Final = 0o644  # the training process runs under any uid

OfRank = TypeVar("OfRank", Beacon, CheckpointDone)


class RankFiles(msgspec.Struct, frozen=True):
    """What the folder of one pod holds, by rank."""

    beacons: dict[int, Beacon] = {}
    answers: dict[int, CheckpointDone] = {}


def read(folder: Path) -> RankFiles:
    """Return what the pod's ranks have written; nothing where the folder is not there (yet or any more)."""
    try:
        with _opened(folder) as directory:
            return _read(directory)
    except OSError:
        return RankFiles()


def _read(directory: int) -> RankFiles:
    files = RankFiles({}, {})
    with os.scandir(directory) as entries:
        names = [entry.name for entry in islice(entries, _NAMES_MAX)]
    for name in names:
        if match := _RANK_FILE.fullmatch(name):
            _keep(files.beacons, int(match[1]), _beacon(_content(directory, name, beacon.SIZE)))
        elif match := _DONE_FILE.fullmatch(name):
            _keep(files.answers, int(match[1]), _answer(_content(directory, name, _JSON_BYTES_MAX)))
    return files


def write_request(folder: Path, request: CheckpointRequest) -> bool:
    """Put the request into the pod's folder as a whole, and return True; False where it is there already.

    Raises OSError: no such folder, no space, or something of the pod's own stands in the way.
    """
    with _opened(folder) as directory:
        content = msgspec.json.encode(request)
        if _content(directory, CHECKPOINT_REQUEST_FILE, _JSON_BYTES_MAX) == content:
            return False
        _replace(directory, content)
        return True


def _replace(directory: int, content: bytes) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_TEMPORARY, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_TRICKS
    file = os.open(_TEMPORARY, flags, _FOR_ALL, dir_fd=directory)
    try:
        os.fchmod(file, _FOR_ALL)
        os.write(file, content)
    finally:
        os.close(file)
    os.rename(_TEMPORARY, CHECKPOINT_REQUEST_FILE, src_dir_fd=directory, dst_dir_fd=directory)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _NO_TRICKS)
    try:
        yield directory
    finally:
        os.close(directory)


def _content(directory: int, name: str, limit: int) -> bytes | None:
    """Return the content of a regular file of at most ``limit`` bytes, None for anything else."""
    try:
        file = os.open(name, os.O_RDONLY | _NO_TRICKS, dir_fd=directory)
    except OSError:
        return None
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > limit:
            return None
        return os.read(file, limit)
    except OSError:
        return None
    finally:
        os.close(file)


def _beacon(content: bytes | None) -> Beacon | None:
    try:
        return beacon.decode(content or b"")
    except ValueError:
        return None


def _answer(content: bytes | None) -> CheckpointDone | None:
    try:
        return msgspec.json.decode(content or b"", type=CheckpointDone)
    except (msgspec.DecodeError, RecursionError):
        return None


def _keep(kept: dict[int, OfRank], rank: int, value: OfRank | None) -> None:
    """Keep what a file says, if it says it of the rank that it is named after."""
    if value is None or value.rank != rank or len(kept) >= _RANKS_MAX:
        RANK_FILE_ERRORS.inc()
    else:
        kept[rank] = value
