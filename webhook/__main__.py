"""Starts the webhook: ``python -m webhook --config FILE``."""

from outrider.component import start
from webhook.app import run
from webhook.config import Config

if __name__ == "__main__":
    start("webhook", "Prepares training pods at admission.", Config, run)
