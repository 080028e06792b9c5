"""What a job asks of the network: how close its pods must be, or would like to be. Pure."""

import msgspec


class TopologyAsk(msgspec.Struct, frozen=True):
    """Wishes of one gang; an empty level means none.

    A level is given by its name (leaf) or by the node label that holds it, as the cluster's levels list them.
    ``segment_pods`` consecutive ranks (a tensor or pipeline group; 0: no segments) belong together at
    ``segment_level``, which the placement keeps wherever ``segment_required`` says so, else where it can. With
    ``segment_exclusive`` no two segments share a domain there; with 0 ``segment_pods`` beside a level the members
    themselves say which segment each is in.
    """

    required_level: str = ""
    preferred_level: str = ""
    segment_pods: int = 0
    segment_level: str = ""
    segment_required: bool = False
    segment_exclusive: bool = False


NO_ASK = TopologyAsk()
