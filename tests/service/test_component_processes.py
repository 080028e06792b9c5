import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from outrider.component import ComponentConfig, start
async def work(config):
    print(config.probe_port, flush=True)
start("trial", "Does nothing.", ComponentConfig, work)
"""


def run(folder: Path, settings: str) -> "subprocess.CompletedProcess[str]":
    (folder / "config.yaml").write_text(settings)
    command = [sys.executable, "-c", PROGRAM, "--config", str(folder / "config.yaml")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_component_works_with_the_settings_of_its_file(tmp_path: Path) -> None:
    ended = run(tmp_path, "probePort: 9090\n")
    assert (ended.returncode, ended.stdout) == (0, "9090\n")


@pytest.mark.parametrize(
    ("settings", "field"), [("logLevel: LOUD", "$.logLevel"), ("probePort: -1", "$.probePort"), ("port: 1", "port")]
)
def test_settings_that_cannot_be_used_end_it_at_once_and_are_named(tmp_path: Path, settings: str, field: str) -> None:
    ended = run(tmp_path, settings)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"outrider-trial: {tmp_path / 'config.yaml'}: ")
    assert field in ended.stderr
    assert "Traceback" not in ended.stderr
