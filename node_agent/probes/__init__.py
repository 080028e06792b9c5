"""Probes: one file per source of evidence."""
