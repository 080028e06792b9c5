"""Starts the webhook: ``python -m webhook --config FILE``."""

import argparse
import sys
from pathlib import Path

from outrider import config, service
from outrider.telemetry import logs, traces
from webhook import app
from webhook.config import Config


def main() -> None:
    """Run until SIGTERM or SIGINT; exit code 2 for a configuration that can't be used."""
    parser = argparse.ArgumentParser(prog="webhook", description="Prepares training pods at admission.")
    parser.add_argument("--config", type=Path, help="YAML file; without it built-in defaults hold")
    try:
        settings = config.load(Config, parser.parse_args().config)
    except config.ConfigError as error:
        sys.stderr.write(f"webhook: {error}\n")
        sys.exit(2)
    logs.setup("webhook", settings.log_level)
    traces.setup("outrider-webhook")
    service.run(lambda: app.run(settings))


if __name__ == "__main__":
    main()
