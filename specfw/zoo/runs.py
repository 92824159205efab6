"""A run of the trainer: its folder, what it was asked for, and the model that came out."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from specfw.backend import bound
from specfw.files import write_whole
from specfw.registry import require
from specfw.zoo import checkpoints, heldout, objective, sizes, training
from specfw.zoo.batches import Batches
from specfw.zoo.prepared import Prepared

FACTS = "run.json"
EVALUATED_WINDOWS = 128


@final
@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run is asked for.

    Attributes:
        size: of the model.
        recipe: of the training.
        seed: of weights and data.
        rows: windows of a step.
        length: tokens predicted in a window.
        target: the run whose rows are learned from; None learns from the text alone.
        text_share: the weight of the text beside the target's rows, in [0, 1].
    """

    size: sizes.Size
    recipe: training.Recipe
    seed: int
    rows: int
    length: int
    target: Path | None = None
    text_share: float = 0.0

    def __post_init__(self) -> None:
        streams = self.recipe.streams
        require("rows", self.rows > 0 and self.rows % streams == 0, f"a positive multiple of {streams}", self.rows)
        require("length", self.length >= 1, "1 or more", self.length)
        require("seed", 0 <= self.seed < 2**64, "in [0, 2^64)", self.seed)
        require("text_share", 0 <= self.text_share <= 1, "in [0, 1]", self.text_share)

    @property
    def tokens(self) -> int:
        """Tokens predicted over the whole schedule."""
        return self.recipe.steps * self.rows * self.length


def execute(run: Run, prepared: Prepared, folder: Path) -> None:
    """Train, or go on training, in `folder`.

    Raises:
        ValueError: another run's checkpoint lies there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder, _facts(run, prepared))
    model = sizes.build(run.size.config(prepared.facts["vocab_size"]), run.seed)
    learned = objective.distillation(load(run.target), run.text_share) if run.target else objective.next_token
    batches = Batches(stream=prepared.training, rows=run.rows, length=run.length, seed=run.seed)
    size_bytes = prepared.facts["held_out"]["bytes"]

    def held_out(model: Any) -> float:
        return heldout.loss(model, prepared.held_out, size_bytes, EVALUATED_WINDOWS).nats_per_token

    training.train(model, learned, batches, run.recipe, folder, held_out)


def load(folder: Path) -> Any:
    """The model of a run's checkpoint, float32."""
    model = sizes.build(facts(folder)["config"], seed=0)
    weights, _ = checkpoints.weights(folder)
    model.load_weights(list(weights.items()))
    return model


def facts(folder: Path) -> dict[str, Any]:
    """What `execute` noted of a run.

    Raises:
        ValueError: no run lies there.
    """
    if not (folder / FACTS).exists():
        raise ValueError(f"a run must be named, got {folder} without {FACTS}")
    content: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return content


def _facts(run: Run, prepared: Prepared) -> dict[str, Any]:
    return {
        "config": run.size.config(prepared.facts["vocab_size"]),
        "recipe": asdict(run.recipe),
        "seed": run.seed,
        "rows": run.rows,
        "length": run.length,
        "tokens": run.tokens,
        "target": run.target and run.target.name,
        "text_share": run.text_share,
        "corpus": prepared.facts,
        "backend": bound() and bound()._asdict(),  # type: ignore[union-attr]
    }


def _claim(folder: Path, wanted: dict[str, Any]) -> None:
    path = folder / FACTS
    if path.exists():
        found = facts(folder)
        differing = sorted(key for key in wanted if key != "backend" and found.get(key) != wanted[key])
        if differing:
            raise ValueError(f"a resumed run must be asked for as it was begun, got another {', '.join(differing)}")
    else:
        write_whole(path, json.dumps(wanted, indent=1) + "\n")
