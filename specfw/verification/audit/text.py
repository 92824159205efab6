"""One text under audit."""

from typing import NamedTuple

from specfw.verification.audit.claim import Claim


class Text(NamedTuple):
    """A prompt, what was emitted after it, and the law it is said to follow.

    Attributes:
        prompt: place of the prompt in its list.
        sample: sample number.
        ids: of the prompt, at least one.
        emitted: ids.
        claim: the chains.
    """

    prompt: int
    sample: int
    ids: tuple[int, ...]
    emitted: tuple[int, ...]
    claim: Claim
