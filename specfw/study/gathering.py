"""From folders to a study: everything that can be read, and one sentence for everything that cannot."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from specfw.files import ERROR, EVENTS, SUMMARY, SWEEP, TOKENS
from specfw.study.columns import varying
from specfw.study.escaping import one_line, shortened, word
from specfw.study.finding import OTHERS, Found, Sweep, find
from specfw.study.gathered import Other, Problem, Run, Study
from specfw.study.loading import breaks_off, mapping, words
from specfw.study.others import read_other
from specfw.study.pooling import is_whole, what_ran
from specfw.study.reading import read
from specfw.study.values import count

_LONGEST = 300
"""Characters of a sentence."""


def gather(sources: Sequence[str], leave_out: Path | None = None) -> Study:
    """Read every record at or beneath the sources.

    Args:
        sources: folders: runs, sweeps, or anything above them.
        leave_out: a folder that is not looked into.

    Raises:
        ValueError: a source is no folder, or nothing in them could be read.
    """
    found, sweeps, problems = find(sources, leave_out)
    entries = [entry for one in found for entry in _entries(one)]
    runs = tuple(entry for entry in entries if isinstance(entry, Run))
    others = tuple(entry for entry in entries if isinstance(entry, Other))
    problems += [entry for entry in entries if isinstance(entry, Problem)]
    problems += [told for sweep in sweeps for told in _missing(sweep)]
    if not runs and not others:
        first = f"; {problems[0].name}: {problems[0].sentence}" if problems else ""
        raise ValueError(f"task.source must hold a record that can be read, got {', '.join(sources)}{first}")
    problems += _repeated(runs)
    return Study(tuple(sources), runs, others, tuple(problems), varying(runs))


def problem(name: str, sentence: str) -> Problem:
    """One line, not too long, whatever was quoted in it."""
    return Problem(name, shortened(one_line(" ".join(sentence.split())), _LONGEST))


def _entries(found: Found) -> Iterator[Run | Other | Problem]:
    """The records in a folder, each whole or as the sentence that says why not."""
    for kind, name in OTHERS.items():
        if name in found.files:
            try:
                yield read_other(found, kind)
            except (ValueError, RecursionError) as error:
                yield problem(found.name, str(error))
    if SUMMARY in found.files:
        try:
            run = read(found)
            yield run
            yield from _about(run, found)
        except (ValueError, RecursionError) as error:
            yield problem(found.name, str(error))
    elif found.files.isdisjoint(OTHERS.values()):
        yield problem(found.name, _without_summary(found))


def _without_summary(found: Found) -> str:
    if ERROR not in found.files:
        return f"unfinished: there is no {SUMMARY}"
    try:
        return f"failed: {words(found.folder / ERROR)}"
    except ValueError as error:
        return str(error)


def _about(run: Run, found: Found) -> Iterator[Problem]:
    """What a reader of a run's row should know."""
    if run.row.error is not None:
        yield problem(run.name, f"ended by an error, and is in no pool: {run.row.error}")
    elif run.row.interrupted:
        yield problem(run.name, "was interrupted, and is in no pool")
    for name in (EVENTS, TOKENS):
        if name in found.files and breaks_off(found.folder / name):
            yield problem(run.name, f"{name} ends in half a line")


def _missing(sweep: Sweep) -> Iterator[Problem]:
    """That jobs of a sweep have neither finished nor failed; a failed one is told by itself."""
    try:
        jobs = count(mapping(sweep.folder / SWEEP), "jobs")
    except (ValueError, RecursionError) as error:
        yield problem(sweep.name, str(error))
        return
    if jobs is not None and sweep.finished + sweep.failed < jobs:
        to_go_on = f"to go on: {shlex.quote(f'task.resume={word(sweep.named)}')}"
        yield problem(sweep.name, f"sweep: {sweep.finished} of {jobs} jobs have finished; {to_go_on}")


def _repeated(runs: Sequence[Run]) -> Iterator[Problem]:
    """Runs that are no more evidence, and runs that look as if they were not."""
    first: dict[str, str] = {}
    same: dict[tuple[str, int], Run] = {}
    for run in runs:
        digest = run.row.digest
        earlier = same.setdefault((what_ran(run), run.row.seed), run) if is_whole(run) else run
        if earlier is not run:
            shared = "digest" if earlier.row.digest == digest else "configuration and seed"
            yield problem(run.name, f"has the {shared} of {earlier.name}, and is in no pool")
        elif digest in first:
            own = f"has the digest of {first[digest]} but other models or prompts, and a pool of its own"
            yield problem(run.name, own)
        first.setdefault(digest, run.name)
