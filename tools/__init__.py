"""Repository tooling: generators and their checks."""
