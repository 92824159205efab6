"""One run: the parts put together, decoded, recorded, and held against their law. Knows no Hydra."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from specfw.acceptance.base import AcceptanceRule
from specfw.counting import Tally, outcomes
from specfw.diagnostics.base import Observer
from specfw.diagnostics.tokens import TokenRows
from specfw.drafting.controllers.base import Costs
from specfw.errors import FailedCheckError
from specfw.generation import Generation
from specfw.models.base import Progress
from specfw.models.cost import forward_cost
from specfw.models.memory import Estimate, estimate, wired
from specfw.parts import Models, Plan, decoder, load, plan
from specfw.prompts.base import Encoded
from specfw.provenance import open_record
from specfw.recording import Record
from specfw.shelf import Shelf
from specfw.summary import Output, Summary, summarise, warnings
from specfw.transcript import Transcript, Writer, silent
from specfw.types import Batch, Outcome
from specfw.watching import Watcher

import numpy as np

LARGEST_BATCH = 1024
COST_REPEATS = 5


class _Sequence(NamedTuple):
    prompt: int
    sample: int
    ids: tuple[int, ...]


def run(  # noqa: PLR0913 # all but the first by keyword, each with a default
    config: Mapping[str, Any],
    *,
    unresolved: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    acceptance: AcceptanceRule | Mapping[str, Any] | str | None = None,
    shelf: Shelf | None = None,
    write: Writer = silent,
    progress: Progress | None = None,
    watcher: Watcher | None = None,
    quiet: bool = False,
) -> Summary:
    """Run one configuration.

    Args:
        config: plain, resolved.
        unresolved: the same with its interpolations, for the configuration of record.
        folder: of the record, existing; None keeps none.
        acceptance: an explicit rule, which beats configuration and environment.
        shelf: see `parts.load`.
        write: called with the generated text and the summary line, in order.
        progress: called while a prompt is taken in; None logs how far it is every few seconds.
        watcher: told after every round what was counted so far.
        quiet: say nothing on stderr.

    Raises:
        ValueError: the configuration cannot be honoured, or the models do not fit into memory.
        FailedCheckError: a row was no distribution.
        KeyboardInterrupt: interrupted; the record of what ran is complete.
    """
    planned = plan(config, acceptance)
    models = load(planned, shelf)
    encoded = planned.prompts.encode(models.target)
    size = _batch_size(config["batch_size"], models)
    needed = read(models, encoded, config)
    record = Record(folder, debug=config["log_level"] == "debug", quiet=quiet)
    digest = open_record(record, config, unresolved or config, planned, models, encoded)
    if needed.peak_bytes:
        record.event("memory_estimated", **needed.record())
    planned = costed(planned, models, encoded, lambda curve: record.event("forward_cost_measured", **curve))
    under_way = _Run(config, planned, models, record, write, progress or record.progress, watcher or Watcher())
    facts = {"digest": digest, "seed": config["seed"], "interrupted": False}
    try:
        with wired():
            under_way.decode(_sequences(encoded, config["num_samples"]), size)
    except KeyboardInterrupt:
        under_way.close({**facts, "interrupted": True})
        raise
    except Exception as error:
        record.warn("run_failed", error=str(error))
        under_way.close({**facts, "error": str(error)}, broken=isinstance(error, FailedCheckError))
        raise
    return under_way.close(facts)


def costed(planned: Plan, models: Models, encoded: Sequence[Encoded], tell: Callable[[dict[str, Any]], None]) -> Plan:
    """The plan with a controller that knows what forward passes cost, measured now and told if it asks."""
    context = max(len(one.ids) for one in encoded)

    def measure(rows: int) -> Costs:
        assert models.drafter is not None
        counts = sorted({1, 2, 3, 5, 9, 17, rows} & set(range(1, rows + 1)))
        target = forward_cost(models.target, counts, context, COST_REPEATS)
        costs = Costs(target, forward_cost(models.drafter, [1], context, COST_REPEATS)[1])
        tell({"curve": sorted(target.items()), "draft_step_s": costs.draft_step_s})
        return costs

    return planned._replace(controller=planned.controller.costed(measure)) if models.drafter else planned


def read(models: Models, encoded: Sequence[Encoded], config: Mapping[str, Any]) -> Estimate:
    """Read the weights, if everything fits into memory."""
    longest = max(len(one.ids) for one in encoded) + config["max_tokens"]
    needed = estimate(models.present(), longest, config["prefill_chunk"])
    needed.require_room()
    for model in models.present().values():
        model.read()
    return needed


def _sequences(encoded: Sequence[Encoded], num_samples: int) -> list[_Sequence]:
    return [_Sequence(one.index, sample, one.ids) for one in encoded for sample in range(num_samples)]


def _batch_size(asked: int | None, models: Models) -> int:
    single = next((model.name for model in models if model is not None and not model.batched), None)
    if single and asked is not None and asked > 1:
        raise ValueError(
            f"batch_size must be 1 for a checkpoint ({single} decodes one sequence at a time), got {asked}"
        )
    return 1 if single else asked or LARGEST_BATCH


def _batches(sequences: Sequence[_Sequence], size: int) -> Iterator[list[_Sequence]]:
    """Sequences that are fed together: of one prompt length, at most `size`; in order where size is 1."""
    alike: dict[int, list[_Sequence]] = {}
    for place, sequence in enumerate(sequences):
        alike.setdefault(len(sequence.ids) if size > 1 else place, []).append(sequence)
    for group in alike.values():
        for start in range(0, len(group), size):
            yield group[start : start + size]


class _Run:
    """A run under way: everything that grows while it lasts."""

    def __init__(
        self,
        config: Mapping[str, Any],
        planned: Plan,
        models: Models,
        record: Record,
        write: Writer,
        progress: Progress,
        watcher: Watcher,
    ) -> None:
        self._record, self._write, self._stop = record, write, config["stop"]
        self._progress, self._watcher = progress, watcher
        self._max_tokens, self._total = config["max_tokens"], 0
        self._active, self._tokenizer = planned.active, models.target.tokenizer
        self._tally = Tally(planned.active.rule.stops_at_rejection)
        setting = planned.setting._replace(drafter=models.drafter)
        self._observers: dict[str, Observer] = {name: one.open(setting) for name, one in planned.diagnostics.items()}
        self._decoder = decoder(config, planned, models, tuple(self._observers.values()))
        self._outputs: dict[tuple[int, int], Output] = {}
        self._host_syncs, self._prefill_s = 0, 0.0
        if any(isinstance(observer, TokenRows) for observer in self._observers.values()):
            record.tokens(())
        self._text_of = cache(lambda token: self._tokenizer.decode([token]))

    def decode(self, sequences: Sequence[_Sequence], size: int) -> None:
        """Decode everything; text of sequences decoded alone is written as it comes, other text in order."""
        batches = list(_batches(sequences, size))
        streams = all(len(batch) == 1 for batch in batches)
        self._total = self._max_tokens * len(sequences)
        try:
            for batch in batches:
                try:
                    self._decode(batch, self._write if streams else silent)
                finally:  # whatever ends the text, what follows stands on a line of its own
                    if streams:
                        self._write("\n")
        finally:
            self._watcher.end()
            if not streams:
                for key in sorted(self._outputs):
                    self._write(f"{self._outputs[key].text}\n")

    def _decode(self, sequences: list[_Sequence], write: Writer) -> None:
        eos_ids = self._decoder.eos_ids
        texts = [Transcript(self._tokenizer, one.ids, eos_ids, self._stop, write) for one in sequences]
        prompts, prompt, sample = (
            np.array(column, dtype=np.int64)
            for column in zip(*((one.ids, one.prompt, one.sample) for one in sequences), strict=True)
        )
        generation = Generation(
            decoder=self._decoder,
            batch=Batch(prompts, prompt, sample),
            listen=lambda row, tokens: texts[row].hear(tokens),
            progress=self._progress,
        )
        try:
            for outcome in generation:
                self._take_in(outcome, texts)
            for text in texts:
                text.finish()
        finally:
            self._host_syncs += generation.host_syncs
            self._prefill_s += generation.prefill_s
            for row, (sequence, text) in enumerate(zip(sequences, texts, strict=True)):
                self._keep(sequence, text, generation, row)

    def _keep(self, sequence: _Sequence, text: Transcript, generation: Generation, row: int) -> None:
        emitted = generation.tokens[row, len(sequence.ids) : generation.lengths[row]].tolist()
        ended = bool(emitted) and emitted[-1] in self._decoder.eos_ids
        stopped = ended or text.stopped is not None
        finish = "stop" if stopped else "length" if generation.finished[row] else "interrupted"
        output = Output(sequence.prompt, sequence.sample, tuple(emitted), text.text, finish)
        self._outputs[sequence.prompt, sequence.sample] = output
        self._total -= self._max_tokens - len(emitted)

    def _take_in(self, outcome: Outcome, texts: Sequence[Transcript]) -> None:
        """Count and record a round, then say its text, so that nothing is said that is not in the record."""
        self._tally.add(outcome)
        for observer in self._observers.values():
            if isinstance(observer, TokenRows):
                rows = observer.drain()
                self._record.tokens({"id": row["id"], "text": self._text_of(row["id"]), **row} for row in rows)
        for name in outcomes(outcome):
            self._record.first(name, rule=self._active.rule.id)
        self._record.round(outcome)
        for text in texts:
            text.flush()
        self._watcher.round(self._tally, self._total)

    def close(self, facts: Mapping[str, Any], *, broken: bool = False) -> Summary:
        """Sum up, close the record and say the line."""
        outputs = tuple(self._outputs[key] for key in sorted(self._outputs))
        facts = {**facts, "host_syncs": self._host_syncs, "prefill_s": self._prefill_s}
        summary = summarise(
            self._active, self._tally, self._observers, outputs, facts, self._record.folder, broken=broken
        )
        for name, words in warnings(summary).items():
            self._record.warn(name, warning=words)
        self._record.event("run_finished", **summary.numbers)
        self._record.close(summary.numbers)
        self._write(f"{summary.line}\n")
        return summary
