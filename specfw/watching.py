"""Someone who follows a run from round to round: the loop tells, and knows nothing of bars."""

from specfw.counting import Tally


class Watcher:
    """One who does not look; a bar is another."""

    def round(self, tally: Tally, total: int) -> None:
        """Called after every round.

        Args:
            tally: the counters so far.
            total: tokens that the run comes to at most; it shrinks where a sequence ends early.
        """

    def end(self) -> None:
        """Called when decoding is over, however it ended, and before what follows is said."""
