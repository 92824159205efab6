"""What a record says of a run before its first token: configuration, versions, machine, chains, models, rule."""

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import Any

from specfw import registry
from specfw.backend import bind
from specfw.files import CONFIG
from specfw.parts import Models, Plan
from specfw.prompts.base import Encoded
from specfw.recording import Record, plain
from specfw.resolution import Choice

import mlx.core as mx
import yaml

PACKAGES = ("specfw", "mlx", "mlx-lm", "hydra-core", "omegaconf", "numpy", "scipy", "structlog")


def open_record(
    record: Record,
    config: Mapping[str, Any],
    unresolved: Mapping[str, Any],
    planned: Plan,
    models: Models,
    prompts: Sequence[Encoded],
) -> str:
    """Write the configuration of record and the events that start a run.

    Args:
        record: of the run.
        config: plain, resolved.
        unresolved: the same with its interpolations kept.
        planned: the parts.
        models: the loaded pair.
        prompts: encoded.

    Returns:
        The digest of the resolved configuration, the BLAS and its threads included.
    """
    backend, rule = bind(), planned.asked.node()
    record.write(CONFIG, yaml.safe_dump(plain({**unresolved, "acceptance": rule}), sort_keys=False, allow_unicode=True))
    resolved = in_force(config, planned.asked)
    digest = digest_of(resolved)
    for warning in backend.warnings:
        record.warn("backend", warning=warning)
    if sys.platform.startswith("linux") and not shutil.which("g++"):
        record.warn("mx_compile_fallback", warning="no g++: compiled functions run uncompiled, same values")
    record.event(
        "run_started",
        digest=digest,
        seed=config["seed"],
        device=str(mx.default_device()),
        **resolved["backend"],
        processor=backend.processor,
        backend=backend._asdict(),
        versions=_versions(),
        chain=planned.chain.describe(),
        chain_digest=planned.chain.digest,
        draft_chain=planned.draft_chain.describe(),
        draft_chain_digest=planned.draft_chain.digest,
        models={role: model and model.fingerprint() for role, model in models._asdict().items()},
        prompts=len(prompts),
        plugins=registry.plugins(),
        prompts_digest=digest_of([(prompt.index, prompt.ids) for prompt in prompts]),
        config=resolved,
    )
    _notes(record, planned, models, prompts)
    record.event(
        "rule_active",
        rule=planned.active.rule.id,
        preserves_target=planned.active.rule.preserves_target,
        decided_by=planned.active.decided_by,
        asked=planned.asked.rule.id,
        seed_inert=planned.chain.is_greedy,
    )
    return digest


def in_force(config: Mapping[str, Any], asked: Choice) -> dict[str, Any]:
    """The configuration as this process runs it: the rule that was asked for by name, and the BLAS that is bound."""
    backend = bind()
    bound = {"blas": backend.blas, "threads": backend.threads}
    return {**config, "acceptance": asked.node(), "backend": bound}


def _notes(record: Record, planned: Plan, models: Models, prompts: Sequence[Encoded]) -> None:
    for role, model in models._asdict().items():
        for note in model.notes if model else ():
            record.event("model_note", role=role, note=note)
    for prompt in prompts:
        for note in prompt.notes:
            record.event("prompt_note", prompt=prompt.index, note=note)
    if planned.drafter is not None and planned.draft_chain.digest != planned.chain.digest:
        record.event("draft_chain_differs", draft_chain=planned.draft_chain.describe())


def digest_of(value: Any) -> str:
    """SHA-256 of plain values, as records name them."""
    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()


@cache
def _versions() -> Mapping[str, str]:
    found = {"python": python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a bare checkout is not installed
            found[name] = "not installed"
    return found
