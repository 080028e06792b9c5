"""Kernel limits are raised where they are too low, and only there."""

from pathlib import Path

from testbed import limits


def test_only_a_limit_that_is_too_low_is_raised_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "fs" / "inotify"
    folder.mkdir(parents=True)
    (folder / "max_user_instances").write_text("128\n")
    (folder / "max_user_watches").write_text("1048576\n")
    said: list[str] = []
    limits.ensure(said.append, tmp_path)
    assert (folder / "max_user_instances").read_text() == "8192"
    assert (folder / "max_user_watches").read_text() == "1048576\n"
    assert said == ["raised fs.inotify.max_user_instances from 128 to 8192 until the next boot"]
