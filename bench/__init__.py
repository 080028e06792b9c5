"""Benchmarks; each writes bench/out/NAME.json."""
