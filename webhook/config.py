"""Settings of the webhook."""

from typing import Annotated

import msgspec


class Config(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The webhook's configuration file; the chart writes it."""

    image: Annotated[str, msgspec.Meta(min_length=1)] = "ghcr.io/outrider/outrider:0.1.0"
    """Image of the init container that brings the in-pod runtime: Outrider's own, from wherever pods can pull it."""

    log_level: str = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""

    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8443
    """Port of the admission server."""

    probe_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8080
    """Port of /healthz, /readyz and /metrics."""
