"""Starts the node agent: ``python -m node_agent --config FILE``."""

from node_agent.app import run
from node_agent.config import Config
from outrider.component import start

if __name__ == "__main__":
    start("node-agent", "Watches the GPUs of one node.", Config, run)
