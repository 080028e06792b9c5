import logging

import pytest

from node_agent.kept_file import KeptFile


def test_what_is_urgent_is_written_at_once_and_the_rest_within_a_minute(tmp_path):
    path = tmp_path / "new" / "kept.json"
    file = KeptFile(path, list[int])
    file.keep([1], "a", 0)
    file.keep([2], "a", 59)
    assert file.read() == [1]
    file.keep([2], "a", 60)
    assert file.read() == [2]
    file.keep([3], "b", 61)
    assert KeptFile(path, list[int]).read() == [3]


def test_what_did_not_change_is_not_written_again(tmp_path):
    path = tmp_path / "kept.json"
    file = KeptFile(path, list[int])
    file.keep([1], "a", 0)
    path.unlink()
    file.keep([1], "a", 1000)
    assert file.read() is None


def test_a_failed_write_is_logged_once_a_minute_and_made_up_for(tmp_path, caplog):
    (tmp_path / "state").write_text("a file where the folder should be")
    file = KeptFile(tmp_path / "state" / "kept.json", list[int])
    for second in range(0, 60, 5):
        file.keep([second], second, second)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    (tmp_path / "state").unlink()
    file.keep([60], 60, 60)
    assert file.read() == [60]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1", b"\xff", b"[" * 100_000])
def test_a_file_that_can_not_be_read_is_as_none(tmp_path, content):
    (tmp_path / "kept.json").write_bytes(content)
    assert KeptFile(tmp_path / "kept.json", list[int]).read() is None
