"""Starts the scheduler plugin: ``python -m scheduler_plugin --config FILE``."""

from outrider.component import start
from scheduler_plugin.app import run
from scheduler_plugin.config import Config

if __name__ == "__main__":
    start("scheduler", "Places GPU gangs on healthy, well-connected nodes, beside kube-scheduler.", Config, run)
