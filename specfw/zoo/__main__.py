"""Trains the shipped pair. Everything lies in the user's cache, `specfw/zoo` there, until it is exported.

    python -m specfw.zoo corpus
    python -m specfw.zoo train target --size target --steps 5700
    python -m specfw.zoo train plain --size drafter --steps 2500 --rate 5e-3
    python -m specfw.zoo distill distilled --target target --size drafter --steps 2500 --rate 5e-3

A command that was interrupted and is given again goes on at its last checkpoint.
"""

from specfw.backend import bind

bind(threads=1)  # a batch is split among MLX's streams, a core each

import argparse  # noqa: E402 - the BLAS is bound before anything else
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from specfw.zoo import corpus, prepared, runs  # noqa: E402
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
    print(prepared.prepare(options.root, options.home / "corpus"))  # noqa: T201


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


if __name__ == "__main__":
    sys.exit(main())
