"""What the benchmark of the rules shows: a line, a table, sentences, plain values."""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from specfw.benchmark.deciding.contenders import SOFTMAX
from specfw.benchmark.deciding.measuring import MATCH, STOCHASTIC, Deciding, Size, numbers
from specfw.benchmark.tables import Table, interval, number
from specfw.recording import plain

HEAD = ("V", "K", "rule", "ms", "x softmax", "x sampler_match", "x floor", "x numpy", "x transformers", "top_k ms")


def line(found: Deciding) -> str:
    """The one line; its shape is pinned by a test."""
    slowest = max(
        median(size.seconds[name]) / median(size.seconds[SOFTMAX]) for size in found.sizes for name in found.rules
    )
    return (
        f"[Benchmark rules] sizes={len(found.sizes)} rules={','.join(found.rules)} repeats={found.repeats} "
        f"copy_gb_per_s={found.copy_bytes_per_s / 1e9:.1f} slowest_x_softmax={slowest:.2f}"
    )


def table(found: Deciding) -> Table:
    """One row a size and rule."""
    rows = tuple(_row(size, name) for size in found.sizes for name in found.rules)
    return Table("One round, decided from logits", (*HEAD, "x without"), rows)


def _row(size: Size, name: str) -> tuple[str, ...]:
    own, truncated = median(size.seconds[name]), f"{name} top_k"
    other = own / median(size.torch_s) if size.torch_s and name == STOCHASTIC else None
    return (
        str(size.vocab_size),
        str(size.num_draft_tokens),
        name,
        number(1e3 * own, 3),
        interval(size.times(name, SOFTMAX)),
        interval(size.times(name, MATCH)),
        number(own / size.floor_s, 1),
        interval(size.times(name, f"{name} numpy")),
        number(other, 3),
        number(1e3 * median(size.seconds[truncated]), 3),
        interval(size.times(truncated, name)),
    )


def floors(found: Deciding) -> Table:
    """What everything is held against."""
    rows = tuple(
        (
            str(size.vocab_size),
            str(size.num_draft_tokens),
            number(1e3 * size.floor_s, 3),
            number(1e3 * median(size.seconds[SOFTMAX]), 3),
            number(1e3 * median(size.torch_s), 3) if size.torch_s else "-",
        )
        for size in found.sizes
    )
    return Table("Held against", ("V", "K", "bytes over bandwidth, ms", "mx.softmax, ms", "transformers, ms"), rows)


def sentences(found: Deciding) -> Iterator[str]:
    """What the columns say."""
    yield f"copy bandwidth: {found.copy_bytes_per_s / 1e9:.1f} GB/s, bytes read and written."
    yield f"transformers: {found.torch or 'its _speculative_sampling ran in a process of its own'}."
    yield f"top_k: the same with top_k = {found.top_k} in both chains."


def record(found: Deciding, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Everything in plain values."""
    written: dict[str, Any] = plain(
        {
            "line": line(found),
            "machine": machine,
            "repeats": found.repeats,
            "top_k": found.top_k,
            "copy_bytes_per_s": found.copy_bytes_per_s,
            "transformers": found.torch,
            "sizes": [numbers(size, found.rules) for size in found.sizes],
        }
    )
    return written
