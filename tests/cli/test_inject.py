"""Drills: lines that say that they are drills, and changes of the simulated library's answers."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from outrider.cli.inject import app
from outrider.cli.simulated import full_key
from outrider.health.kernel.records import parse
from testbed import kernel_log, nvml
from testbed.nvml.profiles import profile_values
from testbed.nvml.state import NvmlState

SOURCE = Path(nvml.__file__).parent / "src"


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


def test_without_a_gpu_a_value_is_that_of_all_gpus_and_the_nodes_own_stay(state: NvmlState) -> None:
    assert (
        run("nvml", "temperature.memory=91", "init.error=18", "call.all.hang=1", "--state", state.path).exit_code == 0
    )
    after = state.read()
    assert (after["gpu.temperature.memory"], after["init.error"], after["call.all.hang"]) == ("91", "18", "1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["temprature.margin=-3", "--gpu", 2], "no value 'temprature.margin'; near it are temperature.margin"),
        (["gpu.2.nvlink.3.stat=0"], "near it are"),
        (["qqqqq=0"], "the state file has those of this board"),
        (["temperature.gpu=1", "--gpu", 8], "there is no GPU 8: this machine has GPUs 0 to 7"),
        (["gpu.9.temperature.gpu=1"], "there is no GPU 9"),
        (["gpu.1.temperature.gpu=1", "--gpu", 1], "names its GPU itself"),
        (["init.error=18", "--gpu", 1], "is of the whole node: leave --gpu out"),
    ],
)
def test_an_answer_that_nothing_asks_for_is_refused(state: NvmlState, words: list[str], said: str) -> None:
    before = state.path.read_text()
    done = run("nvml", *words, "--state", state.path)
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())
    assert state.path.read_text() == before


def test_every_value_that_the_library_reads_is_known() -> None:
    source = "".join(file.read_text() for file in SOURCE.glob("*.c"))
    read = set(re.findall(r'"([a-z0-9_]+(?:\.[a-z0-9_]+)+)"', source))
    held = {key for board in ("a100", "h100", "h200", "b200") for key in profile_values(board, "n1", "rack-0")}
    for key in (read | held) - {"sim.h"}:
        written = key if key.startswith(("gpu.", "init.", "node.")) or key.endswith(".version") else f"gpu.{key}"
        assert full_key(written.replace("gpu.nvlink.version", "nvlink.version"), None, 8)
    for key in ("field.92", "field.92.3", "nvlink.17.state", "nvlink.3.state.error", "p2p.3", "call.GetUUID.error"):
        assert full_key(key, 3, 8) == f"gpu.3.{key}"
    assert full_key("ecc.volatile.uncorrected.l2", 3, 8) == "gpu.3.ecc.volatile.uncorrected.l2"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["xid", "79"], "--gpu N, or --pci"),
        (["xid", "79", "--pci", "19:00"], "no PCI address"),
        (["xid", "79", "--gpu", "9", "--proc", "/nowhere"], "driver lists no GPUs below /nowhere: run this"),
        (["xid", "0", "--pci", "0000:19:00"], "greater than or equal to 1"),
        (["line", "x", "--kernel-log", "/nowhere/kmsg"], "run this as root"),
        (["nvml", "a=1"], "SIM_NVML_STATE"),
        (["nvml", "a", "--state", "/nowhere"], "KEY=VALUE"),
        (["nvml", "uuid=1", "--state", "/nowhere/state"], "No such file"),
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
    assert "there is no GPU 0: the state file lists no GPUs" in done.output
