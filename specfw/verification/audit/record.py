"""Texts of a run of ours: its record says what they claim, and must still be true of models and prompts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specfw import registry
from specfw.files import EVENTS, SUMMARY, TOKENS
from specfw.parts import Models
from specfw.prompts.base import Encoded
from specfw.provenance import digest_of
from specfw.recording import plain
from specfw.registry import require
from specfw.verification.audit.claim import Claim
from specfw.verification.audit.text import Text

LARGEST = 2**63
_STARTED = ("plugins", "config", "models", "prompts_digest")
_CONFIGURED = ("target", "drafter", "drafting", "sampler", "draft_sampler", "prompts", "prefill_chunk")
_NO_IDENTITY = ("path", "computed_in")
"""Entries of a fingerprint that may differ between two machines with the same files."""


def started(folder: Path) -> dict[str, Any]:
    """The event that began the run in `folder`.

    Raises:
        ValueError: there is none, or the run had modules of the user's that are not imported here.
    """
    events = (event for _, event in _objects(folder / EVENTS))
    event = next((event for event in events if event.get("event") == "run_started"), None)
    if event is None:
        raise ValueError(f"task.source must be the folder of a run, but {folder / EVENTS} has no run_started")
    lacking = [name for name in _STARTED if name not in event] or [
        f"config.{name}" for name in _CONFIGURED if name not in event["config"]
    ]
    require("task.source", not lacking, f"a whole record, its run_started with {', '.join(_STARTED)}", lacking)
    missing = [name for name in event["plugins"] if name not in registry.plugins()]
    require("plugins", not missing, f"those of the run, {event['plugins']}", list(registry.plugins()))
    return event


def require_same_models(recorded: Mapping[str, Any], models: Models) -> None:
    """Refuse a model that is not the one the run had.

    Raises:
        ValueError: names the role and the file, or what else identifies it.
    """
    for role, model in models.present().items():
        then, now = (dict(_leaves(tree)) for tree in (recorded[role], plain(model.fingerprint())))
        for name in sorted(then.keys() | now.keys()):
            if then.get(name) != now.get(name) and name.partition(".")[0] not in _NO_IDENTITY:
                raise ValueError(
                    f"{role} must be the model of the run, but {name} is {now.get(name)!r} in {model.name} and was "
                    f"{then.get(name)!r}"
                )


def same_prompts(digest: str, prompts: Sequence[Encoded]) -> dict[int, tuple[int, ...]]:
    """The prompts' ids by place, if they are those the run had.

    Raises:
        ValueError: a file or a chat template has changed since.
    """
    ids = [(prompt.index, prompt.ids) for prompt in prompts]
    now = digest_of(ids)
    require("prompts", now == digest, f"those of the run, whose ids have the SHA-256 {digest}", now)
    return dict(ids)


def texts(folder: Path, prompts: Mapping[int, tuple[int, ...]], claimed: Claim, vocab_size: int) -> list[Text]:
    """What the run emitted, by prompt and sample.

    Raises:
        ValueError: there is no list of tokens, a token is none of the target's, it does not go on where a prompt or
            the token before it ends, or the list is shorter than the run says.
    """
    path = folder / TOKENS
    require("task.source", path.is_file(), f"a run that left its {TOKENS} (diagnostics.tokens)", str(folder))
    found: dict[tuple[int, int], list[int]] = {}
    for number, token in _objects(path):
        where = f"task.source {TOKENS} line {number}"
        prompt = _whole(f"{where} prompt", token.get("prompt"), max(prompts) + 1)
        require(where, prompt in prompts, f"a token of the prompts {sorted(prompts)}", token)
        said = found.setdefault((prompt, _whole(f"{where} sample", token.get("sample"), LARGEST)), [])
        due = len(prompts[prompt]) + len(said)
        require(where, token.get("position") == due, f"at position {due}", token.get("position"))
        said.append(_whole(f"{where} id", token.get("id"), vocab_size))
    _require_all(folder / SUMMARY, sum(map(len, found.values())))
    return [
        Text(prompt, sample, prompts[prompt], tuple(said), claimed) for (prompt, sample), said in sorted(found.items())
    ]


def _whole(where: str, value: Any, limit: int) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit
    require(where, whole, f"an integer in [0, {limit})", value)
    return int(value)


def _require_all(summary: Path, count: int) -> None:
    """Where the run's summary is at hand, its tokens must all be."""
    if summary.is_file():
        emitted = json.loads(summary.read_text(encoding="utf-8")).get("emitted", count)
        require(f"task.source {TOKENS}", count == emitted, f"the {emitted} tokens that the run emitted", count)


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a file of ours with the numbers of their lines."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"task.source {path.name} must be UTF-8, got {str(path)!r} ({error})") from error
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise ValueError(f"task.source {path.name} line {number} must be JSON, got {line[:80]!r}") from error
        require(f"task.source {path.name} line {number}", isinstance(entry, dict), "a JSON object", line[:80])
        yield number, entry


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _leaves(value, f"{path}.{key}" if path else key)
    else:
        yield path, tree
