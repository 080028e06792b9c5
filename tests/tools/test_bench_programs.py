"""Programs that measure for minutes: asked for help, they tell of themselves and start nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

import bench

PROGRAMS = sorted(
    path.stem for path in Path(bench.__path__[0]).glob("*.py") if '__name__ == "__main__"' in path.read_text()
)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--nonsense", 2)])
def test_a_bench_answers_questions_about_itself_and_does_not_run(program: str, argument: str, code: int) -> None:
    command = [sys.executable, "-m", f"bench.{program}", argument]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert "usage: " in done.stdout + done.stderr
