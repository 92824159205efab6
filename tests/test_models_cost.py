"""The cost of a forward pass: which passes are made, and that the cache is left as it was found."""

from statistics import median

from specfw.models import cost
from specfw.models.base import LanguageModel
from specfw.models.checkpoint import Checkpoint
from specfw.models.cost import forward_cost

import checkpoints
import pytest
from kit import iid, markov

CONTEXT, REPEATS, ROWS = 600, 3, (1, 5, 2)


class Recording(LanguageModel):
    """Another model, and how many tokens it was fed after how many."""

    def __init__(self, model):
        self.model, self.vocab_size, self.calls, self.caches = model, model.vocab_size, [], []
        self.was_read = False

    def new_cache(self, batch_size):
        self.caches.append(self.model.new_cache(batch_size))
        return self.caches[-1]

    def forward(self, tokens, cache):
        assert 0 <= tokens.min().item() <= tokens.max().item() < self.vocab_size
        self.calls.append((int(cache.lengths[0]), tokens.shape))
        return self.model.forward(tokens, cache)

    def read(self):
        self.was_read = True
        self.model.read()

    def fingerprint(self):
        raise NotImplementedError


@pytest.fixture(params=["iid", "markov", "checkpoint"])
def model(request, tmp_path):
    if request.param == "checkpoint":
        return Recording(Checkpoint(path=checkpoints.write(tmp_path / "tiny", checkpoints.LLAMA)).load("target"))
    return Recording(iid((0.5, 0.5)) if request.param == "iid" else markov([[0.5, 0.5], [0.9, 0.1]]))


def test_counts_take_turns_after_the_same_context_and_the_cache_stays_as_long(model):
    seconds = forward_cost(model, ROWS, CONTEXT, REPEATS)
    assert model.calls[:2] == [(0, (1, 512)), (512, (1, CONTEXT - 512))]
    assert model.calls[2:] == [(CONTEXT, (1, count)) for count in ROWS] * (1 + REPEATS)
    (cache,) = model.caches
    assert cache.lengths.tolist() == [CONTEXT]
    assert model.was_read
    assert list(seconds) == list(ROWS)
    assert all(time > 0 for time in seconds.values())


def test_it_is_the_median_without_the_first_turn(monkeypatch):
    first, rest = [90.0, 80.0], [[1.0, 5.0, 2.0], [7.0, 3.0, 4.0]]
    turns = [first, *map(list, zip(*rest, strict=True))]
    times = iter([time for turn in turns for time in turn])
    monkeypatch.setattr(cost, "_timed", lambda *_: next(times))
    assert forward_cost(iid((0.5, 0.5)), (1, 2), 4, 3) == {1: median(rest[0]), 2: median(rest[1])}


def test_only_the_pass_itself_is_timed(monkeypatch):
    ticks = iter((1.0, 1.25, 7.0, 7.5))
    monkeypatch.setattr(cost, "perf_counter", lambda: next(ticks))
    assert forward_cost(iid((0.5, 0.5)), (1,), 4, 1) == {1: 0.5}


@pytest.mark.parametrize(
    ("rows", "context", "repeats", "sentence"),
    [
        ((), 4, 1, r"rows must be one or more counts of at least 1, got \[\]"),
        ((1, 0), 4, 1, r"rows must be one or more counts of at least 1, got \[1, 0\]"),
        ((1,), 0, 1, "context must be at least 1, got 0"),
        ((1,), 4, 0, "repeats must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_a_pass(rows, context, repeats, sentence):
    model = Recording(iid((0.5, 0.5)))
    with pytest.raises(ValueError, match=rf"^{sentence}$"):
        forward_cost(model, rows, context, repeats)
    assert not model.calls
    assert not model.was_read
