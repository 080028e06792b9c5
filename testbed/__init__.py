"""A real Kubernetes on one machine, for the tests, the benchmarks and the demo."""
