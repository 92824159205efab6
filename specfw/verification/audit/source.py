"""What is audited: texts with what they claim, and the models they are held against. Of runs of ours, and foreign."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specfw.acceptance.sampler_match import SamplerMatch
from specfw.files import EVENTS
from specfw.parts import Models, Plan, load, plan
from specfw.registry import require
from specfw.shelf import Shelf
from specfw.verification.audit import foreign, record
from specfw.verification.audit.claim import Claim, claim
from specfw.verification.audit.text import Text


class Case(NamedTuple):
    """Everything an audit looks at; weights are unread.

    Attributes:
        models: the target the texts are said to come from, and a drafter where one is at hand.
        greedy_drafts: whether the drafter proposed its argmax.
        texts: in order of prompt and sample.
        prefill_chunk: tokens of a prompt that are fed at once.
    """

    models: Models
    greedy_drafts: bool
    texts: tuple[Text, ...]
    prefill_chunk: int


def opened(source: str, config: Mapping[str, Any], shelf: Shelf | None = None) -> Case:
    """Open a run's folder or a file of foreign texts; refuses everything that can be before a forward pass.

    Args:
        source: a run's folder, or a file of JSON lines.
        config: of the audit, plain; a foreign text is held against its models, a run against its own.
        shelf: see `parts.load`.

    Raises:
        ValueError: nothing to audit lies there, or models or prompts are not those of the run.
    """
    path = Path(source).expanduser()
    if path.is_dir() and (path / EVENTS).is_file():
        return _of_run(path, shelf)
    require("task.source", path.is_file(), f"the folder of a run (with its {EVENTS}), or a file of JSON lines", source)
    return _of_file(path, config, shelf)


def _of_run(folder: Path, shelf: Shelf | None) -> Case:
    started = record.started(folder)
    config = started["config"]
    # which rule made the text does not matter here; what the environment says of rules neither
    planned = plan(config, SamplerMatch())
    claimed = claim(config["sampler"], config["draft_sampler"], "sampler", "draft_sampler")
    models = load(planned, shelf)
    record.require_same_models(started["models"], models)
    prompts = record.same_prompts(started["prompts_digest"], planned.prompts.encode(models.target))
    texts = record.texts(folder, prompts, claimed, models.target.vocab_size)
    return _case(planned, models, texts, config)


def _of_file(path: Path, config: Mapping[str, Any], shelf: Shelf | None) -> Case:
    lines = foreign.lines(path)
    planned = plan(config, SamplerMatch())
    models = load(planned, shelf)
    known: dict[str, Claim] = {}
    texts = [foreign.text(line, place, models.target, known) for place, line in enumerate(lines)]
    return _case(planned, models, texts, config)


def _case(planned: Plan, models: Models, texts: Sequence[Text], config: Mapping[str, Any]) -> Case:
    return Case(models, planned.point_mass, tuple(texts), config["prefill_chunk"])
