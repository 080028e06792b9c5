"""Starts the node agent: ``python -m node_agent --config FILE``."""

import argparse
import sys
from pathlib import Path

from node_agent import app
from node_agent.config import Config
from outrider import config, service
from outrider.telemetry import logs, traces


def main() -> None:
    """Run until SIGTERM or SIGINT; exit code 2 for a configuration that can't be used."""
    parser = argparse.ArgumentParser(prog="node_agent", description="Watches the GPUs of one node.")
    parser.add_argument("--config", type=Path, help="YAML file; without it built-in defaults hold")
    try:
        settings = config.load(Config, parser.parse_args().config)
    except config.ConfigError as error:
        sys.exit(f"node_agent: {error}")
    logs.setup("node-agent", settings.log_level)
    traces.setup("outrider-node-agent")
    service.run(lambda: app.run(settings))


if __name__ == "__main__":
    main()
