"""Errors of the testbed; each message says what happened, where, and what to do next."""


class TestbedError(Exception):
    """Something that the user of the testbed can act on; printed without a traceback."""

    __test__ = False  # the name begins with "Test", but pytest has nothing to collect here


class MissingPrerequisiteError(TestbedError):
    """A program or right that the testbed needs is absent; the message names the way to get it."""


class BusyError(TestbedError):
    """Another `up` or `down` of the same name is running."""
