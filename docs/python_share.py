"""How much of a run's text is Python: the table of docs/zoo.md, from the record of a run.

    python -m specfw drafting=none sampler.temperature.value=0.7 num_samples=50
    python docs/python_share.py outputs/<date>/<time>

Each sample is read with its prompt. The standard library's `tokenize` finds its statements, and a statement is Python
where `ast` parses it by itself: a header with a body of `pass`, an `else` or `except` after the header that it needs.
A line is in the statement that it belongs to; blank lines, comments and what stood in the prompt are not counted. What
begins after the last whole statement (max_tokens cut it, or a bracket or a string was never closed) is `unfinished`.
"""
# ruff: noqa: INP001 # a script beside the pages it serves

import ast
import io
import json
import re
import sys
import tokenize
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from specfw.models.checkpoint import Checkpoint

import yaml

HEAD = ("temperature", "samples", "lines", "Python", "not Python", "unfinished", "Python among the finished")
BEFORE = {"else": "if x: pass\n", "elif": "if x: pass\n", "except": "try: pass\n", "finally": "try: pass\n"}
AFTER = ("", "\n    pass", "\n    pass\nfinally: pass", "\ndef f(): pass")
BETWEEN = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


class Statement(NamedTuple):
    """A statement without its body: its first and last line, from 0, and its text; None where it does not end."""

    first: int
    last: int
    text: str | None


def main(folder: str) -> None:
    """Print one row of the table."""
    config = yaml.safe_load((Path(folder) / "config.yaml").read_text(encoding="utf-8"))
    prompt, samples = config["prompts"]["text"], texts(Path(folder), config)
    lines = sum((count(prompt, text) for text in samples), Counter())
    python, wrong, unfinished = (lines[kind] for kind in ("python", "wrong", "unfinished"))
    shares = [f"{part} ({part / lines.total():.1%})" for part in (python, wrong, unfinished)]
    temperature = config["sampler"]["temperature"]["value"]
    row = [f"{temperature}", f"{len(samples)}", f"{lines.total()}", *shares, f"{python / max(python + wrong, 1):.1%}"]
    sys.stdout.write("".join(f"| {' | '.join(cells)} |\n" for cells in (HEAD, ["---"] * len(HEAD), row)))


def texts(folder: Path, config: dict[str, Any]) -> Sequence[str]:
    """What each sequence of a run emitted."""
    sequences = defaultdict(list)
    for line in (folder / "tokens.jsonl").read_text(encoding="utf-8").splitlines():
        token = json.loads(line)
        sequences[token["prompt"], token["sample"]].append(token["id"])
    model = Checkpoint(**{key: value for key, value in config["target"].items() if key != "name"}).load("target")
    return [model.tokenizer.decode([id_ for id_ in ids if id_ not in model.eos_ids]) for ids in sequences.values()]


def count(prompt: str, text: str) -> Counter[str]:
    """Lines by kind: `python`, `wrong` and `unfinished`."""
    given = prompt.count("\n")
    lines = Counter[str]()
    for statement in statements(prompt + text):
        kind = "unfinished" if statement.text is None else "python" if is_python(statement.text) else "wrong"
        lines[kind] += max(statement.last + 1 - max(statement.first, given), 0)
    return lines


def statements(text: str) -> Iterator[Statement]:
    """Every statement; a line whose indentation fits no line above it is one by itself, and none that is Python."""
    lines, done = list(io.StringIO(text)), 0
    while done < len(lines):
        try:
            for statement in tokenised(lines, done):
                done = statement.last + 1
                yield statement
            done = len(lines)
        except IndentationError:
            done = code_after(lines, done) + 1
            yield Statement(done - 1, done - 1, "?")
        except tokenize.TokenError:
            yield Statement(code_after(lines, done), len(lines) - 1, None)
            done = len(lines)


def tokenised(lines: Sequence[str], start: int) -> Iterator[Statement]:
    """The statements from line `start` on, until `tokenize` gives up."""
    begun = None
    for token in tokenize.generate_tokens(iter(lines[start:]).__next__):
        if token.type == tokenize.NEWLINE and begun is not None:
            (row, column), begun = begun, None
            first, last = start + row - 1, start + token.start[0] - 1
            whole = lines[last].endswith("\n")  # else it was cut, though it may look whole
            yield Statement(first, last, "".join(lines[first : last + 1])[column:] if whole else None)
        elif token.type not in BETWEEN and begun is None:
            begun = token.start


def code_after(lines: Sequence[str], start: int) -> int:
    """The first line from `start` on that is neither blank nor a comment, else the last one."""
    return next((place for place in range(start, len(lines)) if lines[place].split("#")[0].strip()), len(lines) - 1)


def is_python(statement: str) -> bool:
    """Whether a statement parses, given what it needs before and after it."""
    code = BEFORE.get(re.split(r"\W", statement)[0], "") + statement.rstrip()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in strings
        return any(parses(code + end) for end in AFTER)


def parses(code: str) -> bool:
    """Whether `ast` accepts it."""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError):
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
