"""A real local Kubernetes with simulated GPUs, for tests and the demo."""
