"""Four real nodes with the chart installed by helm, and the demo's scenario on them."""

from collections.abc import Iterator

import pytest

from testbed.demo import release, scenario
from testbed.demo.scenario import Scenario
from testbed.demo.story import Moment
from testbed.say import silent, to_stderr
from testbed.state import State


@pytest.fixture(scope="session")
def installed(cluster: State) -> State:
    """Return the cluster with Outrider in it, as `make demo` installs it."""
    release.install(cluster, to_stderr)
    return cluster


@pytest.fixture
def run(installed: State) -> Iterator[Scenario]:
    """Yield a scenario on healthy nodes, with no job yet; what happens is printed, so that a failed test shows it."""
    scenario.remove_job(installed)
    scenario.heal_nodes(installed, silent)

    def tell(moment: Moment) -> None:
        print(moment.text)

    given = Scenario(installed, tell)
    given.look()
    yield given
    given.close()
    scenario.remove_job(installed)
