"""The init container's copy: complete, readable by anyone, and understood by old Pythons."""

import ast
import os
import stat
import tempfile
from pathlib import Path

import pytest

import inpod
from inpod.install import install, main
from inpod.runtime import beacon as inner
from outrider.api import beacon, names
from outrider.api.checkpoint import AnswerState

SOURCES = sorted(Path(inpod.__file__).parent.rglob("*.py"))


def test_runtime_is_copied_whole_and_world_readable(tmp_path: Path) -> None:
    os.umask(0o077)
    try:
        written = install(str(tmp_path))
    finally:
        os.umask(0o022)
    assert {str(Path(path).relative_to(tmp_path)) for path in written} >= {
        "py/sitecustomize.py", "py/outrider_inpod/__init__.py", "py/outrider_inpod/session.py"
    }  # fmt: skip
    for path in tmp_path.rglob("*"):
        wanted = 0o755 if path.is_dir() else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_second_installation_replaces_the_first(tmp_path: Path) -> None:
    install(str(tmp_path))
    stale = tmp_path / "py" / "sitecustomize.py"
    stale.write_text("broken(")
    install(str(tmp_path))
    assert "broken(" not in stale.read_text()
    assert not list(tmp_path.rglob("*.[0-9]*")), "no temporary file stays"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_any_user_can_install_where_only_the_folder_is_writable() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)  # noqa: S103 - as the kubelet makes an emptyDir
        os.seteuid(65532)
        try:
            assert main([folder]) == 0
        finally:
            os.seteuid(0)
        assert (Path(folder) / "py" / "sitecustomize.py").stat().st_uid == 65532


def test_folder_that_cannot_be_written_does_not_stop_the_pod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert main([str(blocked)]) == 0
    assert "runs without step beacon" in capsys.readouterr().err
    assert main([]) == 2


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_source_is_valid_python_3_8(source: Path) -> None:
    ast.parse(source.read_text(), feature_version=(3, 8))


def test_beacon_has_the_layout_that_the_agent_reads() -> None:
    assert (inner.FORMAT, inner.MAGIC, inner.VERSION, inner.SIZE) == (
        beacon.FORMAT, beacon.MAGIC, beacon.VERSION, beacon.SIZE
    )  # fmt: skip


def test_file_names_and_states_are_those_of_the_contract() -> None:
    from inpod.runtime import checkpoint

    assert checkpoint.REQUEST_FILE == names.CHECKPOINT_REQUEST_FILE
    assert checkpoint.DONE_PREFIX == names.CHECKPOINT_DONE_PREFIX
    assert inner.PREFIX == names.RANK_FILE_PREFIX
    assert {checkpoint.SAVED, checkpoint.NO_WRITER, checkpoint.EXPIRED} == {state.value for state in AnswerState}
