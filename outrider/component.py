"""What is alike in the process of every component: its command line, its common settings, its logs and traces."""

import argparse
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Literal, NoReturn, TypeVar

import msgspec

from outrider import service
from outrider.config import ConfigError, load
from outrider.telemetry import logs, traces

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class ComponentConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Settings of every component; each adds its own."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    probe_port: Port = 8080
    """Serves /healthz, /readyz and /metrics."""


C = TypeVar("C", bound=ComponentConfig)


def start(component: str, description: str, settings: type[C], work: Callable[[C], Awaitable[None]]) -> NoReturn:
    """Be the process of a component: run ``work`` with the settings in the file that --config names.

    Exit code 2 for settings that can't be used, which are named on stderr; else as service.run.
    """
    parser = argparse.ArgumentParser(prog=f"outrider-{component}", description=description)
    parser.add_argument("--config", type=Path, help="YAML file; without it built-in defaults hold")
    try:
        config = load(settings, parser.parse_args().config)
    except ConfigError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    logs.setup(component, config.log_level)
    traces.setup(f"outrider-{component}")
    service.run(lambda: work(config))
