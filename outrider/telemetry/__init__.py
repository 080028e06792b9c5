"""Traces and logs, set up alike in every component."""
