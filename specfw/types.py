"""The values that flow between the parts of a round.

Shapes: B sequences, K draft tokens of the round (rows may use fewer: `lengths`), V vocabulary of the target.
Row i of the target is the law of the i-th draft token (from 0) given the draft tokens before it, row K the
law after all of them. They are NamedTuples because `mx.eval` looks into tuples and silently not
into dataclasses.
"""

from typing import NamedTuple

from specfw.distribution import Categorical

import mlx.core as mx
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class History(NamedTuple):
    """What a penalty may look at before each of T positions.

    Attributes:
        committed: B integer arrays, prompt + emitted tokens of each row, known to the host.
        prompt_lengths: [B] how many of them are the prompt.
        drafted: [B, D] int32, draft tokens not yet committed, possibly not computed yet. Of T positions asked
            for, position t sees the first D - T + 1 + t of them.
    """

    committed: tuple[Ints, ...]
    prompt_lengths: Ints
    drafted: mx.array


class Proposal(NamedTuple):
    """What a drafter hands over for one round.

    Attributes:
        tokens: [B, K] int32.
        rows: [B, K, V] the law each token was drawn from, or None when the drafter reports none.
        lengths: [B] int32, how many of them a row proposes, where the drafter ends it early; None: all.
    """

    tokens: mx.array
    rows: Categorical | None
    lengths: mx.array | None = None


class Block(NamedTuple):
    """One drafted block as a rule sees it.

    Attributes:
        target: [B, K+1, V] rows p.
        draft: [B, K, V] rows q, or None.
        tokens: [B, K] int32 draft tokens.
        lengths: [B] int32, each row's own number of draft tokens, at most K.
    """

    target: Categorical
    draft: Categorical | None
    tokens: mx.array
    lengths: mx.array


class Verdict(NamedTuple):
    """What a rule decided about a block.

    Attributes:
        accepted: [B] int32, n draft tokens stand.
        token: [B] int32, the recovered (n < own K) or bonus token.
        survival: [B, K] S_i, probability that at least i draft tokens stand given the block; 0 beyond own K.
        degenerate: [B] bool, the residual had no mass and the target's own row was used.
    """

    accepted: mx.array
    token: mx.array
    survival: mx.array
    degenerate: mx.array


class Round(NamedTuple):
    """One round's lazy graph: nothing in it is computed before the round's one `mx.eval`.

    Attributes:
        block: the drafted block with its rows.
        verdict: the rule's decision.
        logits: [B, K+1, V] of the target, before the sampler chain.
    """

    block: Block
    verdict: Verdict
    logits: mx.array

    @property
    def emitted(self) -> mx.array:
        """[B, K+1] int32, accepted draft tokens then the extra token; undefined beyond it."""
        tokens, verdict = self.block.tokens, self.verdict
        kept = mx.arange(tokens.shape[1] + 1) < verdict.accepted[:, None]
        return mx.where(kept, mx.pad(tokens, [(0, 0), (0, 1)]), verdict.token[:, None])


class Outcome(NamedTuple):
    """One round as the host knows it after the cut (end of sequence, stop string). All arrays are numpy.

    Attributes:
        round: its number, from 0.
        position: [B] index in prompt + output of the round's first token.
        prompt: [B] place of the row's prompt in the whole list.
        sample: [B] sample number.
        lengths: [B] draft tokens the row used, 0 for a finished row.
        proposed: [B] K', up to and including the first end-of-sequence token among the drafts.
        accepted: [B] n' = min(n, K').
        emitted: [B] e, tokens really emitted; 0 for a finished row.
        tokens: [B, K+1] emitted tokens, the first e of each row.
        drafts: [B, K] draft tokens.
        raw_accepted: [B] n, before the cut.
        degenerate: [B] bool.
        active: [B] bool, rows that were not finished when the round began.
        seconds: of the whole round, s.
        phases: draft, verify and decide seconds, when they are timed apart.
    """

    round: int
    position: Ints
    prompt: Ints
    sample: Ints
    lengths: Ints
    proposed: Ints
    accepted: Ints
    emitted: Ints
    tokens: Ints
    drafts: Ints
    raw_accepted: Ints
    degenerate: npt.NDArray[np.bool_]
    active: npt.NDArray[np.bool_]
    seconds: float
    phases: tuple[float, float, float] | None


class Batch(NamedTuple):
    """Sequences decoded together: prompts of one length.

    Attributes:
        prompts: [B, L] int64, L >= 1.
        prompt: [B] place of each row's prompt in the whole list.
        sample: [B] sample number.
    """

    prompts: Ints
    prompt: Ints
    sample: Ints
