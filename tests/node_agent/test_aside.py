import asyncio
import os
import threading

import pytest

from node_agent.probes.aside import Aside, StillReading
from node_agent.probes.files import names_in, read_small


async def test_what_a_reading_returns_or_raises_comes_back():
    aside = Aside[int]()
    assert await aside.run(lambda: 7) == 7
    with pytest.raises(OSError, match="gone"):
        await aside.run(lambda: _fail("gone"))
    assert await aside.run(lambda: 8) == 8


def _fail(text: str) -> int:
    raise OSError(text)


async def test_a_reading_that_hangs_costs_one_thread_and_is_told_until_it_returns():
    aside, release, threads = Aside[int](), threading.Event(), list[int]()
    for _ in range(3):
        with pytest.raises((TimeoutError, StillReading)):
            await asyncio.wait_for(
                aside.run(lambda: (threads.append(threading.get_ident()), int(release.wait()))[1]), 0.05
            )
    assert len(threads) == 1
    release.set()
    assert await _soon(aside) == 1


async def test_an_error_after_the_reader_gave_up_disturbs_nobody():
    aside, release = Aside[int](), threading.Event()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(aside.run(lambda: (release.wait(), _fail("late"))[1]), 0.05)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    release.set()
    assert await _soon(aside) == 1
    assert complaints == []


async def _soon(aside: Aside[int]) -> int:
    while True:
        try:
            return await aside.run(lambda: 1)
        except StillReading:
            await asyncio.sleep(0)


def test_a_small_file_is_read_and_a_missing_one_is_empty(tmp_path):
    (tmp_path / "state").write_bytes(b" 4: ACTIVE\xff\n\n")
    assert read_small(f"{tmp_path}/state") == "4: ACTIVE\ufffd"
    assert read_small(f"{tmp_path}/none") == read_small(f"{tmp_path}/state/below") == ""
    assert (names_in(f"{tmp_path}"), names_in(f"{tmp_path}/none")) == (["state"], [])


def test_a_file_without_end_or_writer_blocks_nobody(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert read_small(f"{tmp_path}/fifo") == ""
    assert len(read_small("/dev/zero")) <= 64 * 1024
