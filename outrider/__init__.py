"""What every Outrider component shares: resources, health, topology, workloads, Kubernetes access, telemetry."""

__version__ = "0.1.0"
