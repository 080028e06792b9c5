"""Per-node agent: probes, judging, publishing."""
