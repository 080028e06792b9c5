"""Runs inside training pods; standard library only, Python 3.8 and later."""
