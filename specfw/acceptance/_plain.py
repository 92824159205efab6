"""Plain decoding as the law with nothing drafted: what `drafting=none` runs, whatever rule is configured."""

from dataclasses import dataclass
from typing import final

from specfw.acceptance._draws import MatchRule


@final
@dataclass(frozen=True, kw_only=True)
class Plain(MatchRule):
    """One draw of the target a round; not registered, because it is chosen by drafting nothing."""

    id = "plain"
    label = "plain decoding"
    preserves_target = True
