"""Mutating admission for training pods."""
