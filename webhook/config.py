"""Settings of the webhook."""

from typing import Annotated

import msgspec

from outrider.api.names import SCHEDULER_NAME
from outrider.component import ComponentConfig, Port


class Config(ComponentConfig, frozen=True, kw_only=True):
    """The webhook's configuration file; the chart writes it."""

    image: Annotated[str, msgspec.Meta(min_length=1)] = "ghcr.io/outrider/outrider:0.1.0"
    """Image of the init container that brings the in-pod runtime: Outrider's own, from wherever pods can pull it."""

    scheduler_name: str = SCHEDULER_NAME
    """Scheduler that asks our extender: pods of the default one are sent to it."""

    port: Port = 8443
    """Port of the admission server."""
