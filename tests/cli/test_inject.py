"""Drills: lines that say that they are drills, and changes of the simulated library's answers."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from outrider.cli.inject import app
from outrider.health.kernel.records import parse
from testbed import kernel_log
from testbed.nvml.profiles import profile_values
from testbed.nvml.state import NvmlState


@pytest.fixture
def log(tmp_path: Path) -> Path:
    kernel_log.create(tmp_path / "kmsg")
    return tmp_path / "kmsg"


@pytest.fixture
def state(tmp_path: Path) -> NvmlState:
    state = NvmlState(tmp_path / "nvml.state")
    state.replace(profile_values("h100", "n1", "rack-0"))
    return state


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"SIM_NVML_STATE": None, "COLUMNS": "200"})


def test_an_xid_becomes_a_line_of_user_space_that_says_it_is_a_drill(log: Path) -> None:
    kernel_log.append(log, ["NVRM: something of the driver"])
    assert run("xid", 79, "--pci", "0000:19:00.0", "--kernel-log", log).exit_code == 0
    record = parse(log.read_bytes().splitlines()[-1])
    assert record is not None
    assert (record.facility, record.sequence) == (1, 1)
    assert record.message == "outrider-drill: NVRM: Xid (PCI:0000:19:00): 79, pid='<unknown>', name=<unknown>"


def test_a_gpu_is_named_by_its_number_where_the_driver_lists_it(log: Path, tmp_path: Path) -> None:
    for address in ("0000:3b:00.0", "0000:19:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
    assert run("xid", 48, "--gpu", 1, "--kernel-log", log, "--proc", tmp_path / "proc").exit_code == 0
    assert "Xid (PCI:0000:3b:00): 48" in log.read_text()


def test_a_gpu_is_named_by_its_number_where_the_simulated_library_lists_it(log: Path, state: NvmlState) -> None:
    assert run("xid", 48, "--gpu", 3, "--kernel-log", log, "--state", state.path).exit_code == 0
    bus_id = state.get(3, "pci.bus_id") or ""
    assert f"Xid (PCI:{bus_id.lower().split('.')[0]}): 48" in log.read_text()


def test_a_line_of_several_stays_one_record_of_bounded_length(log: Path) -> None:
    assert run("line", "a\nNVRM: Xid\x00" + "x" * 5000, "--kernel-log", log).exit_code == 0
    (record,) = log.read_bytes().splitlines()
    assert record.endswith(b"x")
    assert b"Xid\\x00xx" in record
    assert len(record) < 1024


def test_the_simulated_library_answers_otherwise(state: NvmlState) -> None:
    assert run("nvml", "temperature.gpu=91", "--gpu", 2, "--state", state.path).exit_code == 0
    assert state.get(2, "temperature.gpu") == "91"
    assert run("nvml", "temperature.gpu=", "--gpu", 2, "--state", state.path).exit_code == 0
    assert "gpu.2.temperature.gpu" not in state.read()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["xid", "79"], "--gpu N, or --pci"),
        (["xid", "79", "--pci", "19:00"], "no PCI address"),
        (["xid", "79", "--gpu", "9", "--proc", "/nowhere"], "this machine shows no GPUs here; give --pci"),
        (["xid", "0", "--pci", "0000:19:00"], "greater than or equal to 1"),
        (["line", "x", "--kernel-log", "/nowhere/kmsg"], "run this as root"),
        (["nvml", "a=1"], "SIM_NVML_STATE"),
        (["nvml", "a", "--state", "/nowhere"], "KEY=VALUE"),
        (["nvml", "a=1", "--state", "/nowhere/state"], "No such file"),
    ],
)
def test_what_cannot_be_done_is_said(words: list[str], said: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize("state", [b"gpu.count = x\n", b"\xff\xfe\x00", b"gpu.count = 99999999999\n"])
def test_a_state_that_is_none_is_no_crash(tmp_path: Path, state: bytes) -> None:
    path = tmp_path / "state"
    path.write_bytes(state)
    done = run("xid", "79", "--gpu", "0", "--state", str(path))
    assert done.exit_code == 2
    assert "shows no GPUs" in done.output
