import asyncio

import pytest

from outrider.kube.workqueue import WorkQueue

pytestmark = pytest.mark.looptime


async def test_a_key_added_twice_is_handed_out_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_added_during_its_work_is_handed_out_again_afterwards() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await queue.get()
    queue.done(key)
    assert await queue.get() == "a"


async def test_two_workers_never_hold_the_same_key() -> None:
    queue: WorkQueue[int] = WorkQueue()
    held: set[int] = set()
    worked: list[int] = []

    async def worker() -> None:
        while True:
            key = await queue.get()
            assert key not in held
            held.add(key)
            await asyncio.sleep(0.3)
            held.discard(key)
            worked.append(key)
            queue.done(key)

    workers = [asyncio.create_task(worker()) for _ in range(4)]
    for tick in range(60):
        queue.add(tick % 3)
        await asyncio.sleep(0.05)
    await asyncio.sleep(5)
    assert not any(task.done() for task in workers)
    assert set(worked) == {0, 1, 2}
    for task in workers:
        task.cancel()


async def test_of_several_delays_the_earliest_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    loop = asyncio.get_running_loop()
    began = loop.time()
    queue.add_after("a", 50)
    queue.add_after("a", 20)
    queue.add_after("a", 90)
    await queue.get()
    assert loop.time() - began == pytest.approx(20)
    queue.done("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(200):
            await queue.get()


async def test_an_immediate_request_meets_a_delayed_one() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 50)
    queue.add("a")
    queue.done(await queue.get())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(200):
            await queue.get()


async def test_failures_in_a_row_wait_longer_up_to_a_cap_and_success_forgets_them() -> None:
    queue: WorkQueue[str] = WorkQueue(random_unit=lambda: 1.0)
    loop = asyncio.get_running_loop()
    queue.add("a")
    waits = []
    await queue.get()
    for _ in range(12):
        began = loop.time()
        queue.retry("a")
        await queue.get()
        waits.append(loop.time() - began)
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(0.2)
    assert waits[-1] == pytest.approx(30)
    queue.done("a")
    queue.add("a")
    began = loop.time()
    queue.retry(await queue.get())
    await queue.get()
    assert loop.time() - began == pytest.approx(0.2)


async def test_where_keys_have_a_turn_the_lowest_comes_first() -> None:
    turns = {"late": 3, "first": 1, "second": 2}
    queue: WorkQueue[str] = WorkQueue(order=turns.__getitem__)
    for key in turns:
        queue.add(key)
    assert [await queue.get() for _ in turns] == ["first", "second", "late"]


async def test_turns_tell_who_waits_and_not_who_is_being_worked_on() -> None:
    queue: WorkQueue[int] = WorkQueue(order=lambda key: -key)
    for key in (1, 3, 2):
        queue.add(key)
    assert await queue.get() == 3
    assert sorted(queue.turns()) == [-2, -1]
