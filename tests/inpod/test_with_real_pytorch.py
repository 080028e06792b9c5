"""The hooks in a real PyTorch: no user code, no visible difference, and figures of what they cost."""

import json
from pathlib import Path

import msgspec
import pytest

from outrider.api.beacon import decode
from outrider.api.checkpoint import CheckpointDone
from tests.inpod.conftest import Run, run_python

SETUP = """
import json, os, sys, time, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
def step(n=1):
    for _ in range(n):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
"""


def test_steps_and_saves_of_an_unchanged_script_are_recorded(run_rank: Run, shared: Path, torch_path: Path) -> None:
    code = f"{SETUP}step(5)\ntorch.save(model.state_dict(), sys.argv[0] or {str(shared / 'x.pt')!r})\nstep(2)"
    run_rank(code.replace("sys.argv[0] or ", ""), torch_path)
    said = decode((shared / "rank.3").read_bytes())
    assert (said.rank, said.step, said.checkpoint_step) == (3, 7, 5)
    assert said.step_seconds > 0
    assert not (shared / "inpod.error").exists()


def test_number_of_steps_goes_on_from_a_checkpoint(run_rank: Run, shared: Path, torch_path: Path) -> None:
    path = str(shared / "state.pt")
    run_rank(f"{SETUP}step(9)\ntorch.save(optimizer.state_dict(), {path!r})", torch_path)
    run_rank(f"{SETUP}optimizer.load_state_dict(torch.load({path!r}))\nstep(3)", torch_path)
    assert decode((shared / "rank.3").read_bytes()).step == 12


def test_request_is_answered_with_the_scripts_own_save(run_rank: Run, shared: Path, torch_path: Path) -> None:
    code = f"""{SETUP}
path = {str(shared / "latest.pt")!r}
def save():
    torch.save(model.state_dict(), path + ".tmp")
    os.replace(path + ".tmp", path)
step(); save(); step()
request = {{"id": "r1", "reason": "xid/79", "deadline_unix": time.time() + 60}}
with open({str(shared / "ckpt.request")!r}, "w") as file:
    json.dump(request, file)
time.sleep(0.06)
step(2); save(); step()
"""
    run_rank(code, torch_path)
    done = msgspec.json.decode((shared / "ckpt.done.3").read_bytes(), type=CheckpointDone)
    assert (done.id, done.state, done.checkpoint_step) == ("r1", "saved", 4)
    assert done.path == str(shared / "latest.pt")


def test_save_function_of_the_script_is_offered_by_import(run_rank: Run, shared: Path, torch_path: Path) -> None:
    code = f"""{SETUP}
from outrider_inpod import register_checkpoint
register_checkpoint(lambda: torch.save(model.state_dict(), {str(shared / "now.pt")!r}))
with open({str(shared / "ckpt.request")!r}, "w") as file:
    json.dump({{"id": "r1", "reason": "", "deadline_unix": time.time() + 60}}, file)
step(1)
"""
    run_rank(code, torch_path)
    done = msgspec.json.decode((shared / "ckpt.done.3").read_bytes(), type=CheckpointDone)
    assert (done.state, done.checkpoint_step, done.path) == ("saved", 1, str(shared / "now.pt"))


def test_gan_counts_the_first_optimizer_only(run_rank: Run, shared: Path, torch_path: Path) -> None:
    code = f"{SETUP}other = torch.optim.SGD(model.parameters(), lr=0.1)\nfor _ in range(4): step(); other.step()"
    run_rank(code, torch_path)
    assert decode((shared / "rank.3").read_bytes()).step == 4


def test_agent_without_rank_that_steps_writes_nothing(shared: Path, torch_path: Path) -> None:
    run_python(f"{SETUP}step(2)", [shared / "py", torch_path], {"OUTRIDER_DIR": str(shared)})
    assert [path.name for path in shared.iterdir()] == ["py"]


def test_pytorch_looks_as_without_us(run_rank: Run, torch_path: Path) -> None:
    code = f"""{SETUP}
import inspect, pickle
import torch.optim.optimizer as module
assert type(module.__loader__).__name__ == "SourceFileLoader", module.__loader__
assert "class Optimizer" in inspect.getsource(module)
assert torch.save.__name__ == "save" and torch.save is torch.serialization.save
assert pickle.loads(pickle.dumps(torch.save)) is torch.save
assert not [f for f in sys.meta_path if "outrider" in type(f).__module__]
"""
    run_rank(code, torch_path)


def test_folder_that_cannot_be_written_changes_nothing_for_the_job(
    run_rank: Run, torch_path: Path, tmp_path: Path
) -> None:
    done = run_rank(f"{SETUP}step(3)\nprint('trained')", torch_path, OUTRIDER_DIR=str(tmp_path / "gone"))
    assert (done.stdout, done.stderr) == ("trained\n", "")


@pytest.mark.parametrize("rank", ["", "x", "-1"])
def test_rank_that_is_no_number_is_noted_and_silent(run_rank: Run, shared: Path, torch_path: Path, rank: str) -> None:
    done = run_rank(f"{SETUP}step(3)\nprint('trained')", torch_path, RANK=rank)
    assert (done.stdout, done.stderr) == ("trained\n", "")
    assert len((shared / "inpod.error").read_text().splitlines()) == 1


def test_step_costs_microseconds(run_rank: Run, torch_path: Path, shared: Path) -> None:
    """The hook alone, so that the noise of training does not hide it."""
    code = f"""{SETUP}
step()
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
(hook,) = hooks.values()
best = float("inf")
for _ in range(7):
    began = time.perf_counter()
    for _ in range(2000): hook(optimizer, (), {{}})
    best = min(best, (time.perf_counter() - began) / 2000)
print(json.dumps({{"microseconds": best * 1e6}}))
"""
    cost = json.loads(run_rank(code, torch_path).stdout)["microseconds"]
    assert cost < 50, cost
    assert decode((shared / "rank.3").read_bytes()).step > 10000
