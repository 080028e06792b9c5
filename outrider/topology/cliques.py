"""The NVLink domain that a node's GPUs report themselves. Pure."""

import re
from collections.abc import Iterable
from typing import Final

# As the agent writes a GPU's place in the fabric: state, then ClusterUUID.CliqueID as GPU feature discovery has it.
_CLIQUE: Final = re.compile(r"clique ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[0-9]{1,10})$")


def clique_of(fabrics: Iterable[str]) -> str:
    """Return the clique that all GPUs of a node are in, from what each says of its fabric; empty where there is none.

    GPUs that disagree, or of which one says nothing, name none: the node is then no sure part of any.
    """
    found = {match[1] if (match := _CLIQUE.search(text)) else "" for text in fabrics}
    return found.pop() if len(found) == 1 else ""
