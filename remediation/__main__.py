"""Starts the remediation controller: ``python -m remediation --config FILE``."""

from outrider.component import start
from remediation.app import run
from remediation.config import Config

if __name__ == "__main__":
    start("remediation", "Moves training off sick GPU nodes.", Config, run)
