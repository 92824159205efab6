"""The audit as a whole: every text replayed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specfw.models.memory import estimate, wired
from specfw.verification.audit.audited import Audited
from specfw.verification.audit.claim import coin_probability, others
from specfw.verification.audit.findings import Findings
from specfw.verification.audit.greedy import differences
from specfw.verification.audit.rows import joined, scores
from specfw.verification.audit.source import Case
from specfw.verification.audit.text import Text


@dataclass(frozen=True, kw_only=True)
class Auditor:
    """How texts are audited.

    Attributes:
        seed: of the transform's own draws.
        alpha: chance at most that right texts are ever rejected by the e-process.
        orders: lists of steps by name, the alternatives to the claimed order.
    """

    seed: int
    alpha: float
    orders: Mapping[str, Sequence[str]]

    def audit(self, case: Case) -> Audited:
        """Read the weights and replay the texts.

        Raises:
            ValueError: the models do not fit into memory, or cannot be read.
            FailedCheckError: a row is no distribution.
        """
        longest = max((len(text.ids) + len(text.emitted) for text in case.texts), default=1)
        estimate(case.models.present(), longest, case.prefill_chunk).require_room()
        for model in case.models.present().values():
            model.read()
        found = Findings()
        with wired():
            for text in case.texts:
                if text.emitted:
                    self._add(found, case, text)
        return found.audited(self.alpha)

    def _add(self, found: Findings, case: Case, text: Text) -> None:
        chain, target = text.claim.chain, case.models.target
        if chain.is_greedy:
            found.add_greedy(text, differences(target, text, case.prefill_chunk))
            return
        found_here = joined(list(scores(case, text, others(chain, self.orders), self.seed)))
        found.add_sampled(text, found_here, coin_probability(chain), lambda token: target.tokenizer.decode([token]))
