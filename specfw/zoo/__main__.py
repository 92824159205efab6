"""Trains the shipped pair. Everything lies in the user's cache, `specfw/zoo` there, until it is exported.

    python -m specfw.zoo corpus
    python -m specfw.zoo train target --size target --steps 5700
    python -m specfw.zoo train plain --size drafter --steps 2000 --rate 4e-3
    python -m specfw.zoo distill distilled --target target --size drafter --steps 2000 --rate 4e-3
    python -m specfw.zoo export target FOLDER/target
    python -m specfw.zoo export distilled FOLDER/drafter
    python -m specfw.zoo measure FOLDER/target FOLDER/drafter

The corpus is the standard library of the interpreter that runs the command. A command that was interrupted and is
given again goes on at its last checkpoint. `measure` prints held-out losses and overlaps of any two exported folders
with one tokenizer, so two ways to train a drafter are compared by measuring both.
"""

from specfw.backend import bind

bind(threads=1)  # a batch is split among MLX's streams, a core each

import argparse  # noqa: E402 - the BLAS is bound before anything else
import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from specfw.zoo import corpus, export, measuring, prepared, runs  # noqa: E402
from specfw.zoo.sizes import SIZES  # noqa: E402
from specfw.zoo.training import Recipe  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand.

    Returns:
        0, or 2 after one sentence about what was wrong with the request.
    """
    options = _parser().parse_args(argv)
    try:
        options.command(options)
    except ValueError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specfw.zoo", description="Trains the shipped pair.")
    parser.add_argument("--home", type=Path, default=prepared.home(), help="where runs lie (default: %(default)s)")
    commands = parser.add_subparsers(required=True)
    reading = commands.add_parser("corpus", help="read the corpus, fit the tokenizer")
    reading.add_argument("--root", type=Path, default=corpus.standard_library())
    reading.set_defaults(command=_corpus)
    for name, text in (("train", "learn from the text"), ("distill", "learn from a target's rows")):
        learning = commands.add_parser(name, help=text)
        _add_recipe(learning)
        learning.set_defaults(command=_train, target=None, text_share=0.0)
        if name == "distill":
            learning.add_argument("--target", required=True, help="the run to learn from")
            learning.add_argument("--text-share", type=float, default=0.0, help="weight of the text beside its rows")
    exporting = commands.add_parser("export", help="write a run as a checkpoint with a model card")
    exporting.add_argument("run", help="its name")
    exporting.add_argument("folder", type=Path)
    exporting.set_defaults(command=_export)
    comparing = commands.add_parser("measure", help="held-out losses and overlaps of two exported models")
    comparing.add_argument("target", type=Path)
    comparing.add_argument("drafter", type=Path)
    comparing.add_argument("--root", type=Path, default=corpus.standard_library())
    comparing.set_defaults(command=_measure)
    return parser


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="its name")
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--rows", type=int, default=8, help="windows of a step")
    parser.add_argument("--length", type=int, default=256, help="tokens of a window")
    parser.add_argument("--seed", type=int, default=0)


def _corpus(options: argparse.Namespace) -> None:
    _print(prepared.prepare(options.root, options.home / "corpus"))


def _train(options: argparse.Namespace) -> None:
    run = runs.Run(
        size=SIZES[options.size],
        recipe=Recipe(steps=options.steps, rate=options.rate),
        seed=options.seed,
        rows=options.rows,
        length=options.length,
        target=options.target and options.home / options.target,
        text_share=options.text_share,
    )
    runs.execute(run, prepared.load(options.home / "corpus"), options.home / options.run)


def _export(options: argparse.Namespace) -> None:
    loss = export.export(options.home / options.run, prepared.load(options.home / "corpus"), options.folder)
    _print(loss._asdict())


def _measure(options: argparse.Namespace) -> None:
    for role in ("target", "drafter"):
        _print({role: measuring.held_out_loss(getattr(options, role), options.root)._asdict()})
    _print(measuring.pair(options.target, options.drafter, options.root))


def _print(values: dict[str, Any]) -> None:
    print(json.dumps(values, indent=1))  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
