"""Tests of the in-pod runtime."""
