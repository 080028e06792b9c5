"""`python -m scheduler_plugin --config FILE`."""

import argparse
from pathlib import Path

from outrider.service import run
from scheduler_plugin.app import main


def _arguments() -> argparse.Namespace:
    words = "Places GPU gangs on healthy, well-connected nodes, beside kube-scheduler."
    parser = argparse.ArgumentParser(prog="scheduler_plugin", description=words)
    parser.add_argument("--config", type=Path, help="YAML file; the built-in defaults without it")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = _arguments()
    run(lambda: main(arguments.config))
