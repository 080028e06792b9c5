"""`outrider scan` on a machine with the simulated NVML library: the agent's own probes and judging, and no cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from outrider.api.gpunode import GPU, GPUNodeStatus
from outrider.cli.live_scan import command, lacking, spelled_out
from outrider.cli.main import app
from testbed import kernel_log, nvml
from testbed.faults import Driver, off_bus, xid


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    nvml.install(tmp_path / "lib", "h100", seed="scanned")
    kernel_log.create(tmp_path / "kmsg")
    (tmp_path / "boot_id").write_text("boot-1\n")
    settings = {
        "kernelLogPath": str(tmp_path / "kmsg"),
        "bootIdPath": str(tmp_path / "boot_id"),
        "stateDir": str(tmp_path / "state"),
        "podResourcesSocket": "",
        "disabledProbes": ["host", "nics"],
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    return tmp_path


def scan(machine: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "outrider.cli.main", "scan", "--config", str(machine / "config.yaml"), *words]
    environment = os.environ | {"LD_LIBRARY_PATH": str(machine / "lib"), "COLUMNS": "300"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_healthy_machine_is_all_gpus_and_exit_code_0(machine: Path) -> None:
    done = scan(machine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("NVIDIA H100") == 8
    assert "Healthy, score 100" in done.stdout


def test_a_lost_gpu_is_named_with_its_evidence_and_exit_code_3(machine: Path) -> None:
    off_bus(Driver(machine), 3)
    done = scan(machine, "-o", "json")
    assert done.returncode == 3, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    # It can't say its UUID, and nobody has seen it before: the driver's line names its place.
    assert [gpu.get("index", 0) for gpu in answer["gpus"] if gpu.get("health") == "Healthy"] == [0, 1, 2, 4, 5, 6, 7]
    assert ("xid/79", "pci:00000000:5d:00") in {(one["code"], one["subjectId"]) for one in answer["findings"]}


def test_health_and_score_are_always_written_for_programs() -> None:
    unknown = spelled_out(GPUNodeStatus(gpus=[GPU(index=0, uuid="GPU-0")]))
    assert isinstance(unknown, dict)
    assert (unknown["health"], unknown["score"], unknown["verdict"]) == ("Unknown", 0, "none")
    assert (unknown["gpus"][0]["index"], unknown["gpus"][0]["health"]) == (0, "Unknown")
    assert msgspec.json.decode(msgspec.json.encode(unknown), type=GPUNodeStatus).gpus[0].uuid == "GPU-0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kernel-log", "/dev/null", "--config", "x.yaml"], "--config: is for a look at this machine"),
        (["--node", "gpu-1"], "--node: names the node of a saved log"),
    ],
)
def test_an_option_that_would_do_nothing_is_an_error(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["scan", *words], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert said in done.output


def test_a_scan_leaves_no_trace(machine: Path) -> None:
    scan(machine)
    assert not (machine / "state").exists()


def test_settings_that_make_no_sense_are_named_and_exit_code_2(machine: Path) -> None:
    (machine / "config.yaml").write_text("nvmlPeriodSeconds: soon\n")
    done = scan(machine)
    assert done.returncode == 2
    assert "nvmlPeriodSeconds" in done.stderr


@pytest.mark.parametrize("module", ["node_agent", "pynvml"])
def test_a_part_that_is_not_installed_is_named_with_the_command_for_the_pod_of_the_node(module: str) -> None:
    words = lacking(lambda name: name != module)
    assert words.startswith(f"{module} is not installed here: pip install '.[agent,cli]'")
    assert "--field-selector spec.nodeName=NODE" in words
    assert "ds/" not in words
    assert lacking() == ""


def test_in_an_agents_pod_its_own_settings_are_used_unless_others_are_named(tmp_path: Path) -> None:
    own = tmp_path / "config.yaml"
    assert "--config" not in command(None, own)
    own.write_text("{}")
    assert command(None, own)[-2:] == ["--config", str(own)]
    assert command(tmp_path / "other.yaml", own)[-1] == str(tmp_path / "other.yaml")


def test_advice_in_the_table_follows_the_code_that_decides(machine: Path) -> None:
    for number in (48, 63):
        xid(Driver(machine), 2, number)
    shown = scan(machine).stdout
    assert "xid/63, seen with it, decides: nothing now" in shown
