"""Real controllers of training jobs beside a testbed: JobSet, LeaderWorkerSet, Kubeflow's, KubeRay.

Each is its own unmodified program, run as its project's manifests say: under its own account and rights, with its
webhooks behind its own Service, in a network namespace of its own as a pod would have.
"""

from testbed.operators.catalogue import CATALOGUE, Operator
from testbed.operators.processes import running, start, stop

__all__ = ["CATALOGUE", "Operator", "running", "start", "stop"]
