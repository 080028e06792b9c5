"""A plugin's main process reduced to its feed: ``python -m tests.scheduler_plugin.feeding`` prints the extender's port.

Its one node is n0. The port may be given; else it is a free one.
"""

import asyncio
import sys

from scheduler_plugin.cluster.world import World
from scheduler_plugin.extender.feed import Feed
from scheduler_plugin.extender.frames import Start
from tests.scheduler_plugin.builders import RULES, make_node


async def main(port: int) -> None:
    """Feed until killed."""
    world = World(RULES)
    world.on_node(None, make_node("n0"))
    world.refresh()
    feed = Feed(lambda: world.snapshot)
    running = asyncio.create_task(feed.run(Start("127.0.0.1", port, 0.5)))
    feed.begin()
    while not feed.port and not running.done():  # noqa: ASYNC110 - it happens in another process
        await asyncio.sleep(0.01)
    print(feed.port, flush=True)
    await running


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
