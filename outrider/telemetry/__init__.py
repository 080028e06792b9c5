"""Traces, metrics and logs, set up alike in every component."""
