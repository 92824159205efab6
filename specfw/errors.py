"""Errors with a meaning for the exit status; bad input is a ValueError (status 2). Standard library only."""


class FailedCheckError(RuntimeError):
    """A check of the run failed (status 1): a row that is no distribution, a law that was not followed."""
