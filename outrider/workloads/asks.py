"""What a gang asks of the network, from its pods' annotations and its owner."""

from collections.abc import Sequence

from outrider.api.core import Owner, Pod
from outrider.topology import NO_ASK, TopologyAsk


def topology_ask(pods: Sequence[Pod], owner: Owner | None = None) -> tuple[TopologyAsk, str]:
    """Return how close the gang's pods must be, and in plain words what of it makes no sense (empty: all does).

    What makes no sense is left out of the ask.
    """
    del pods, owner
    return NO_ASK, ""
