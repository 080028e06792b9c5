"""What is read from command lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.launcher import Kind, inspect


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        (["torchrun", "--nnodes=2", "train.py"], {"nnodes": "2"}),
        (["/usr/bin/torchrun", "--nproc_per_node", "8", "t.py"], {"nproc-per-node": "8"}),
        (["python3.11", "-m", "torch.distributed.run", "--rdzv-id=a", "-m", "pkg"], {"rdzv-id": "a"}),
        (["numactl", "-N0", "torchrun", "--standalone", "--max_restarts", "3", "t.py"],
         {"standalone": "", "max-restarts": "3"}),
        (["torchrun", "--rdzv_c", "a=1", "t.py"], {"rdzv-conf": "a=1"}),
        (["torchrun", "t.py", "--max-restarts", "3"], {}),
        (["sh", "-c", "cd /src && torchrun --rdzv-id 'x y' t.py; echo done"], {"rdzv-id": "x y"}),
        (["bash", "-euxo", "pipefail", "-c", "exec torchrun \\\n --nnodes ${N} t.py"], {"nnodes": "${N}"}),
        (["accelerate", "launch", "--rdzv_backend", "c10d", "t.py"], {"rdzv-backend": "c10d"}),
    ],
)  # fmt: skip
def test_options_of_torchrun_are_read_up_to_the_script(argv: list[str], options: dict[str, str]) -> None:
    launch = inspect(argv)
    assert launch.kind is Kind.TORCHRUN
    assert launch.options == options


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        ([], Kind.UNKNOWN),
        (["/entrypoint.sh"], Kind.UNKNOWN),
        (["python", "-u", "train.py"], Kind.PYTHON),
        (["python", "-m", "pkg.train"], Kind.UNKNOWN),
        (["sh", "-c", "echo 'torchrun"], Kind.UNKNOWN),
        (["sh", "/run.sh"], Kind.UNKNOWN),
    ],
)
def test_other_launchers_are_told_apart(argv: list[str], kind: Kind) -> None:
    assert inspect(argv).kind is kind


def test_assignments_of_a_shell_script_are_seen() -> None:
    launch = inspect(["sh", "-c", "export PET_RDZV_ID=4; PET_NNODES=2 torchrun t.py"])
    assert {"PET_RDZV_ID", "PET_NNODES"} <= launch.assigned


def test_isolated_python_is_seen() -> None:
    assert inspect(["python3", "-uI", "train.py"]).isolated
    assert not inspect(["python3", "-u", "train.py"]).isolated


@given(st.lists(st.text(max_size=12) | st.sampled_from(["sh", "-c", "torchrun", "-m", "-", "--rdzv"]), max_size=8))
def test_no_command_line_is_an_error(argv: list[str]) -> None:
    inspect(argv)
