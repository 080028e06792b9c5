"""sitecustomize: other start-up code runs as ever, and no failure of ours reaches the job."""

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.inpod.conftest import Run, run_python

LOADED = "import sys; print('outrider_inpod' in sys.modules)"


def test_process_that_is_no_rank_loads_nothing(shared: Path) -> None:
    """The torchrun agent itself has no RANK."""
    assert run_python(LOADED, [shared / "py"], {"OUTRIDER_DIR": str(shared)}).stdout == "False\n"
    assert run_python(LOADED, [shared / "py"], {"RANK": "0"}).stdout == "False\n"


def test_rank_without_pytorch_leaves_no_trace(run_rank: Run, shared: Path) -> None:
    assert run_rank(LOADED).stdout == "True\n"
    assert [path.name for path in shared.iterdir()] == ["py"]


def test_users_sitecustomize_runs_and_is_the_one_in_modules(run_rank: Run, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['SEEN'] = __name__; mine = 1\n")
    done = run_rank("import os, sitecustomize; print(os.environ['SEEN'], sitecustomize.mine)", tmp_path)
    assert done.stdout == "sitecustomize 1\n"


def test_chain_of_two_runtimes_ends(run_rank: Run, tmp_path: Path, shared: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(shared / "py", other)
    assert run_rank("print('on')", other).stdout == "on\n"


def test_users_broken_sitecustomize_is_reported_by_python_as_ever(run_rank: Run, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    done = run_rank("print('on')", tmp_path)
    assert done.stdout == "on\n"
    assert "ValueError: theirs" in done.stderr


def test_broken_runtime_is_noted_in_a_file_and_silent(run_rank: Run, shared: Path) -> None:
    (shared / "py" / "outrider_inpod" / "hooks.py").write_text("raise RuntimeError('half a file')\n")
    done = run_rank("print('on')")
    assert (done.stdout, done.stderr) == ("on\n", "")
    assert "half a file" in (shared / "inpod.error").read_text()


def test_folder_that_is_gone_is_silent(run_rank: Run, tmp_path: Path) -> None:
    done = run_rank("print('on')", OUTRIDER_DIR=str(tmp_path / "gone"))
    assert (done.stdout, done.stderr) == ("on\n", "")


def test_import_of_another_module_of_that_name_passes(run_rank: Run) -> None:
    code = "import importlib.util as u; print(u.find_spec('torch.optim.optimizer') if u.find_spec('torch') else None)"
    assert run_rank(code).stdout == "None\n"


@pytest.mark.parametrize("rank", [{}, {"RANK": "0"}], ids=["agent", "rank"])
def test_start_costs_a_few_milliseconds(shared: Path, rank: dict[str, str]) -> None:
    def seconds(path: list[Path]) -> float:
        env = {"PYTHONPATH": ":".join(map(str, path)), "OUTRIDER_DIR": str(shared)} | rank
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], env=env, check=True)
        return time.perf_counter() - began

    pairs = [(seconds([shared / "py"]), seconds([])) for _ in range(15)]
    cost = statistics.median(ours for ours, _ in pairs) - statistics.median(bare for _, bare in pairs)
    assert cost < 0.05, f"{cost * 1000:.1f} ms"
