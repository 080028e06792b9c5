"""`python -m remediation --config FILE`."""

import argparse
from pathlib import Path

from outrider.service import run
from remediation.app import main


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="remediation", description="Moves training off sick GPU nodes.")
    parser.add_argument("--config", type=Path, help="YAML file; the built-in defaults without it")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = _arguments()
    run(lambda: main(arguments.config))
