"""`outrider inject`: rehearses a fault on this machine, without touching its hardware.

A drill is a line in the kernel log that user space wrote and that says so; an agent whose setting ``allowDrills`` is on
takes it for the driver's. Where the machine has NVIDIA's simulated library, its answers can be changed too.
"""

import fcntl
import os
import re
import stat
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from outrider.cli.simulated import KeyProblemError, full_key, gpus_there
from outrider.health.kernel.records import DRILL

_USER_WARNING: Final = 12  # facility user, level warning: user space can't write as the kernel
_LINE_MAX: Final = 900  # bytes; /dev/kmsg refuses more than 1,024 in one write
_ADDRESS: Final = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(\.[0-9a-fA-F])?")
_KEY: Final = re.compile(r"[a-z0-9_]+(\.[A-Za-z0-9_]+)*=[^\n]*")
_NUMBER: Final = re.compile(r"[0-9]{1,3}")
_LAST_SEQUENCE: Final = re.compile(rb"^\d+,(\d+),", re.MULTILINE)

app = typer.Typer(
    no_args_is_help=True, help="Rehearse a fault on this machine: agents with allowDrills take it as real."
)

KernelLog = Annotated[Path, typer.Option(help="kernel log that the agent reads")]
Gpu = Annotated[int | None, typer.Option(min=0, help="number of the GPU, as nvidia-smi counts")]
Address = Annotated[str, typer.Option(help="PCI address of the GPU instead, such as 0000:19:00")]
Proc = Annotated[Path, typer.Option(help="procfs of the machine, where the driver lists its GPUs")]
State = Annotated[Path | None, typer.Option(envvar="SIM_NVML_STATE", help="state file of the simulated NVML library")]


@app.command()
def xid(
    code: Annotated[int, typer.Argument(min=1, max=99999, help="number of the Xid")],
    gpu: Gpu = None,
    pci: Address = "",
    message: Annotated[str, typer.Option(help="text behind the number, as the driver prints it")] = "",
    kernel_log: KernelLog = Path("/dev/kmsg"),
    proc: Proc = Path("/proc"),
    state: State = None,
) -> None:
    """Write the line of an Xid of one GPU."""
    address = pci or _address(gpu, proc, state)
    if not _ADDRESS.fullmatch(address):
        raise typer.BadParameter(f"'{address}' is no PCI address such as 0000:19:00", param_hint="--pci")
    place = address.lower().split(".")[0]
    words = f", {message}" if message else ""
    _write(kernel_log, f"NVRM: Xid (PCI:{place}): {code}, pid='<unknown>', name=<unknown>{words}")


@app.command()
def line(
    text: Annotated[str, typer.Argument(help="a line as the kernel or the driver would print it")],
    kernel_log: KernelLog = Path("/dev/kmsg"),
) -> None:
    """Write any line, for faults that are no Xid."""
    _write(kernel_log, text)


@app.command()
def nvml(
    values: Annotated[
        list[str],
        typer.Argument(help="KEY=VALUE such as temperature.margin=-3 with --gpu 2; an empty value removes it"),
    ],
    gpu: Gpu = None,
    state: State = None,
) -> None:
    """Change what the simulated NVML library answers, of one GPU or of all. Real NVIDIA libraries can't be changed."""
    if state is None:
        raise typer.BadParameter("needed: the state file of a simulated library", param_hint="--state, SIM_NVML_STATE")
    if wrong := next((value for value in values if not _KEY.fullmatch(value)), None):
        raise typer.BadParameter(f"'{wrong}': write KEY=VALUE, such as temperature.margin=-3", param_hint="VALUES")
    count = len(_simulated(state))
    pairs = (one.partition("=") for one in values)
    try:
        changes = {full_key(key, gpu, count): value.strip() for key, _, value in pairs}
    except KeyProblemError as error:
        raise typer.BadParameter(str(error), param_hint="VALUES") from None
    try:
        _change(state, changes)
    except OSError as error:
        raise typer.BadParameter(f"{error.strerror}: {state}", param_hint="--state") from error
    typer.echo(", ".join(f"{key} = {value or '(removed)'}" for key, value in changes.items()))


def _address(gpu: int | None, proc: Path, state: Path | None) -> str:
    if gpu is None:
        raise typer.BadParameter("say which GPU: --gpu N, or --pci ADDRESS", param_hint="--gpu")
    addresses = _simulated(state) if state else _of_driver(proc)
    if gpu >= len(addresses):
        unseen = f"NVIDIA's driver lists no GPUs below {proc}: run this on the node, or give --pci ADDRESS instead"
        there = gpus_there(len(addresses)) if addresses or state else unseen
        raise typer.BadParameter(f"there is no GPU {gpu}: {there}", param_hint="--gpu")
    return addresses[gpu]


def _of_driver(proc: Path) -> list[str]:
    """PCI addresses of the driver's GPUs in the order of their numbers: NVML counts by PCI address."""
    folder = proc / "driver/nvidia/gpus"
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def _simulated(state: Path) -> list[str]:
    values = _values(state)
    count = values.get("gpu.count", "")
    number = int(count) if _NUMBER.fullmatch(count) else 0
    return [values.get(f"gpu.{gpu}.pci.bus_id", "") for gpu in range(number)]


def _write(log: Path, text: str) -> None:
    record = f"{DRILL}{' '.join(text.split())}".encode()[:_LINE_MAX]
    try:
        device = stat.S_ISCHR(log.stat().st_mode)
        file = os.open(log, (os.O_WRONLY if device else os.O_RDWR | os.O_APPEND) | os.O_CLOEXEC)
        try:
            os.write(file, f"<{_USER_WARNING}>".encode() + record if device else _as_record(file, record))
        finally:
            os.close(file)
    except OSError as error:
        words = f"{error.strerror}: {log}. On a node, run this as root"
        raise typer.BadParameter(words, param_hint="--kernel-log") from error
    typer.echo(f"{log}: {record.decode(errors='replace')}")


def _as_record(file: int, text: bytes) -> bytes:
    """Return the record as a regular file that stands in for /dev/kmsg holds it, numbered on from the last one."""
    fcntl.flock(file, fcntl.LOCK_EX)  # let go with the file
    size = os.fstat(file).st_size
    tail = os.pread(file, 64 * 1024, max(0, size - 64 * 1024))
    sequences = _LAST_SEQUENCE.findall(tail)
    sequence = int(sequences[-1]) + 1 if sequences else 0
    printable = "".join(chr(one) if 32 <= one < 127 and one != ord("\\") else f"\\x{one:02x}" for one in text)
    return f"{_USER_WARNING},{sequence},{time.monotonic_ns() // 1000},-;{printable}\n".encode()


def _values(state: Path) -> dict[str, str]:
    try:
        text = state.read_text(errors="replace")
    except OSError as error:
        raise typer.BadParameter(f"{error.strerror}: {state}", param_hint="--state") from error
    lines = (one.partition("=") for one in text.splitlines() if not one.startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in lines if equals}


def _change(state: Path, changes: dict[str, str]) -> None:
    """Replace the file as a whole, as the library's readers expect; writers take turns."""
    with state.with_name(f".{state.name}.lock").open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        values = {key: value for key, value in (_values(state) | changes).items() if value or key not in changes}
        partial = state.with_name(f".{state.name}.partial")
        partial.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
        partial.rename(state)
