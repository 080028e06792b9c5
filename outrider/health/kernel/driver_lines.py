"""What the NVIDIA driver's lines in the kernel log say: Xids, SXids, and faults told in words only.

A line counts only if the driver's prefix opens it: an Xid quoted inside another program's line is no Xid. Forms of
devices: ``devices``. Where one fault takes several records, which may come between those of others:

- SXid: text, severity and data of one event. The text counts; what follows is added to its line.
- off the bus: a record that names the GPU, then one or two that tell what happened to it.
- RmInitAdapter: the driver repeats the failure in a second form.
"""

import re
from collections import deque
from functools import lru_cache
from typing import Final

import msgspec

from outrider.api.gpunode import LINE_MAX
from outrider.health.decoding import decode
from outrider.health.kernel.devices import BDF, UUID, address_id, canonical, gpu_of, instance_of
from outrider.health.kernel.words import Happening, Naming, Said, about_gpu

_XID: Final = re.compile(r"NVRM: Xid\s{0,4}\(([^)]{0,128})\)\s{0,4}:\s{0,4}(\d{1,6})(?!\d)(.*)", re.DOTALL)
_SXID: Final = re.compile(
    r"(?:nvidia-nvswitch\d{1,4}|NVRM): SXid\s{0,4}\(([^)]{0,128})\)\s{0,4}:\s{0,4}(\d{1,6})(?!\d)(?:,\s{0,4}(.*))?",
    re.DOTALL,
)
_SXID_MORE: Final = re.compile(r"(?:Severity \d{1,3}\b|Data \{)")
_LINK: Final = re.compile(r"\bLink (\d{1,3})\b")
_ENGINE: Final = re.compile(r"\bEngine instance (\d{1,4})\b")
_GPU_TEXT: Final = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?({BDF})(?:\.[0-7])?:\s{{0,4}}(.*)", re.DOTALL)
_UUID: Final = re.compile(UUID)
_NAMED_AHEAD: Final = re.compile(rf"NVRM: The NVIDIA GPU (?:PCI:)?({BDF})")
_MODULE: Final = re.compile(r"NVRM: loading NVIDIA UNIX .{0,120}?\b(\d{3,4}(?:\.\d{1,4}){1,3})\b")
_SHADER: Final = re.compile(r"\(GPC (\d{1,3}), TPC (\d{1,3})")
_CLIENT: Final = re.compile(r"\b(GPC\d{1,2}|HUB\d?) (?:GPC|HUB)CLIENT_(\w{1,24})")
_PROGRAM_UNITS: Final = (13, 31)  # Xids of programs that name the unit; the same unit across jobs is a suspect
_JOIN_LINES: Final = 8  # the driver's off-bus notice spans three records; those of other devices may come between
_SWITCHES_MAX: Final = 64

_OFF_BUS: Final = "fallen off the bus"
_OTHER_NOTICE: Final = re.compile(r"installed in this system (?!has\b)\w")
_GSP: Final = re.compile(
    r"heartbeat timed ?out|GSP (?:RM )?(?:heartbeat|task).{0,40}(?:timeout|timed out)|_kgspRpcRecvPoll.{0,80}[Tt]ime"
    r"|rpcSendMessage failed|failed to wait for GSP|GSP boot.{0,40}(?:timeout|failed)|kgspWaitForRmInitDone.{0,80}fail",
    re.IGNORECASE,
)
_PLACED_WORDS: Final = (  # acted on only where the line names the GPU
    ("NV_ERR_RESET_REQUIRED", "kernel/reset-required"),
    ("NV_ERR_GPU_IS_LOST", "kernel/off-bus"),
)
_NODE_WORDS: Final = (
    ("uvm encountered global fatal error", "kernel/uvm-fatal"),
    ("API mismatch", "kernel/driver-mismatch"),
    ("The NVIDIA probe routine failed", "kernel/driver-start"),
    ("None of the NVIDIA devices were init", "kernel/driver-start"),
)


class DriverLines:
    """Reads messages in order; remembers what later records of the same event need."""

    def __init__(self, driver_version: str = "") -> None:
        self.driver_version = driver_version
        self._ahead: deque[tuple[str, int]] = deque(maxlen=_SWITCHES_MAX)
        self._lines = 0
        self._init_failed: tuple[str, int] = ("", 0)
        self._sxids: dict[tuple[str, str], Happening] = {}
        self._told: deque[tuple[str, str]] = deque(maxlen=_SWITCHES_MAX)
        """Events whose text was told: what comes of them later is no event of its own."""

    def read(self, message: str) -> list[Said]:
        """Return what the message says, nothing where it says nothing about the hardware."""
        self._lines += 1
        if message.startswith("NVRM: Xid"):
            return [xid(message, self.driver_version)]
        if "SXid" in message and (event := _SXID.match(message)):
            return self._sxid(event, message)
        if message.startswith("NVRM: "):
            return self._driver(message)
        return _uvm(message)

    @property
    def waits(self) -> bool:
        """True where an event waits for its further lines."""
        return bool(self._sxids)

    def flush(self) -> list[Said]:
        """Return what waits for its further lines: called when no more are there to read."""
        waiting: list[Said] = list(self._sxids.values())
        self._told.extend(self._sxids)
        self._sxids.clear()
        return waiting

    def _sxid(self, event: re.Match[str], message: str) -> list[Said]:
        switch, number, text = gpu_of(event[1]) or event[1][:64], str(int(event[2])), event[3] or ""
        event_id = (switch, number)
        waiting = self._sxids.get(event_id)
        if _SXID_MORE.match(text):
            if waiting is not None and len(waiting.line) < LINE_MAX:
                self._sxids[event_id] = msgspec.structs.replace(waiting, line=f"{waiting.line}; {text}")
            elif waiting is None and event_id not in self._told and text.startswith("Severity"):  # its text is lost
                self._sxids[event_id] = _switch_event(switch, number, _ENGINE.search(text), message)
            return []
        done: list[Said] = [waiting] if waiting is not None else []
        if len(self._sxids) >= _SWITCHES_MAX:
            self._sxids.pop(event_id, None)
            done += self.flush()
        self._sxids[event_id] = _switch_event(switch, number, _LINK.search(text), message)
        return done

    def _driver(self, message: str) -> list[Said]:
        if module := _MODULE.match(message):
            self.driver_version = module[1]
            return []
        ahead, placed = _NAMED_AHEAD.match(message), _GPU_TEXT.match(message)
        named = ahead or placed
        gpu = address_id(canonical(named[1])) if named else ""
        if ahead and _OFF_BUS not in message:
            self._ahead.append((gpu, self._lines))
            return []
        if self._ahead and _OTHER_NOTICE.search(message):
            self._ahead.pop()  # a board that this driver does not serve: nothing is lost
            return []
        if placed and (uuid := _UUID.fullmatch(placed[2].strip())):
            return [Naming(gpu, uuid[0][:4] + uuid[0][4:].lower())]
        return self._words(message, gpu)

    def _words(self, message: str, gpu: str) -> list[Said]:
        if _OFF_BUS in message:
            return [about_gpu("kernel/off-bus", gpu or self._named_ahead(), message)]
        if "RmInitAdapter failed" in message or "rm_init_adapter failed" in message:
            return self._not_initialised(message, gpu)
        for words, code in _PLACED_WORDS:
            if words in message:
                return [_placed(code, gpu, message)]
        if _GSP.search(message):
            return [about_gpu("kernel/gsp-timeout", gpu, message)]
        return [Happening(code=code, line=message) for words, code in _NODE_WORDS if words in message]

    def _named_ahead(self) -> str:
        """Return the GPU that the oldest notice which still waits for its words has named."""
        while self._ahead:
            gpu, line = self._ahead.popleft()
            if self._lines - line < _JOIN_LINES:
                return gpu
        return ""

    def _not_initialised(self, message: str, gpu: str) -> list[Said]:
        before, line = self._init_failed
        self._init_failed = (gpu, self._lines)
        repeats = "rm_init_adapter" in message and before == gpu and 0 < self._lines - line < _JOIN_LINES
        return [] if repeats and line else [_placed("kernel/init-failed", gpu, message)]


def _placed(code: str, gpu: str, message: str) -> Happening:
    """Without a device the line is no reason to act on one, nor on the whole node."""
    return about_gpu(code, gpu, message) if gpu else Happening(code="kernel/unnamed-gpu", line=message)


def _switch_event(switch: str, number: str, port: re.Match[str] | None, line: str) -> Happening:
    place = f"{switch}/{int(port[1])}" if port else switch
    return Happening(code=f"sxid/{number}", subject_id=place, line=line)


def _uvm(message: str) -> list[Said]:
    fatal = message.startswith("nvidia-uvm: ") and "global fatal error" in message.lower()
    return [Happening(code="kernel/uvm-fatal", line=message)] if fatal else []


@lru_cache(maxsize=256)  # storms repeat a few lines by the hundred thousand
def xid(message: str, driver_version: str) -> Happening:
    """Return the Xid that a line tells; ``xid/malformed`` where its number can't be read."""
    match = _XID.match(message)
    if match is None:
        return about_gpu("xid/malformed", gpu_of(message[len("NVRM: Xid") :][:160].lstrip(" (")), message)
    device, number, rest = match[1], int(match[2]), match[3]
    decoded = decode(number, rest, driver_version)
    line = f"{message} [{decoded.detail}]" if decoded.detail else message
    unit = _unit(number, rest) or instance_of(device)
    return about_gpu(decoded.code, gpu_of(device), line, unit=unit, link=decoded.link)


def _unit(number: int, rest: str) -> str:
    if number not in _PROGRAM_UNITS:
        return ""
    if shader := _SHADER.search(rest):
        return f"GPC {int(shader[1])} TPC {int(shader[2])}"
    client = _CLIENT.search(rest)
    return f"{client[1]} {client[2]}" if client else ""
