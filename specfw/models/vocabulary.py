"""Whether two models mean the same words by the same ids: without it nothing a drafter proposes has a sense."""

from collections.abc import Mapping

from specfw.models.base import LanguageModel


def check_same_tokens(target: LanguageModel, drafter: LanguageModel) -> None:
    """Refuse a drafter whose ids are not the target's. A toy's ids stand for nothing, so any size equal fits.

    Raises:
        ValueError: the sizes differ, or an id stands for two different strings; the sentence names the first.
    """
    if target.vocab_size != drafter.vocab_size:
        raise ValueError(
            f"drafter must have the target's number of token ids, {target.vocab_size} ({target.name}), "
            f"got {drafter.vocab_size} ({drafter.name})"
        )
    ours, theirs = target.tokenizer.vocabulary(), drafter.tokenizer.vocabulary()
    if ours is None or theirs is None or ours == theirs:
        return
    meant, read = _words(ours), _words(theirs)
    token = min(token for token in meant.keys() | read.keys() if meant.get(token) != read.get(token))
    raise ValueError(
        f"drafter must have the target's tokens, but id {token} is {meant.get(token)!r} in {target.name} "
        f"and {read.get(token)!r} in {drafter.name}"
    )


def _words(vocabulary: Mapping[str, int]) -> dict[int, str]:
    """What each id stands for; two words of one id are both named."""
    words: dict[int, str] = {}
    for word, token in sorted(vocabulary.items()):
        words[token] = f"{words[token]} or {word}" if token in words else word
    return words
