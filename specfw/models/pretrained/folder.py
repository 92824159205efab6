"""A checkpoint folder in mlx-lm's layout: found, looked through, identified, or refused in one sentence."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from specfw.models.pretrained import hub

import mlx.core as mx

ZOO = {f"zoo:{name}": Path(__file__).parents[2] / "zoo" / name for name in ("target", "drafter")}

_WEIGHTS = "model*.safetensors"
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "merges.txt")
_OPTIONAL = ("generation_config.json", "tokenizer_config.json", "model.safetensors.index.json")
_READ = (_WEIGHTS, "*.json", "*.jinja", "additional_chat_templates/*.jinja", "*.model", "*.tiktoken", "*.txt")
_ADAPTER = ("adapter_config.json", "adapters.safetensors")

_SIGNATURES = "The following argument types are supported"  # and then nanobind lists them all


class Found(NamedTuple):
    """Where a checkpoint lies, and the commit it is where it came from the hub."""

    folder: Path
    commit: str | None


def locate(path: str, revision: str | None, role: str) -> Found:
    """The folder that `path` names; what is on the hub alone is downloaded.

    Raises:
        ValueError: it is neither a shipped model nor a local folder, nor can it be had from the hub.
    """
    folder = ZOO.get(path) or Path(path).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise ValueError(f"{role}.revision must be null for a local folder, got {revision!r}")
        return Found(folder, None)
    if not hub.is_id(path):
        raise ValueError(
            f"{role}.path must be a local folder in mlx-lm's layout, {', '.join(ZOO)}, or a model of the Hugging Face "
            f"hub written organisation/model, got {path!r}"
        )
    snapshot = hub.fetch(path, revision, role)
    return Found(snapshot, hub.commit(snapshot))


def check(folder: Path, role: str) -> None:
    """Look through a folder without reading its weights.

    Raises:
        ValueError: a file is missing, broken or cut short, or the checkpoint wants its own code to be run.
    """
    must = f"{role}.path must be a checkpoint in mlx-lm's layout"
    config = _object(folder / "config.json", must)
    if not isinstance(config.get("model_type"), str):
        raise _refused(folder / "config.json", must, "names no model_type")
    if config.get("model_file") is not None:
        raise _refused(folder / "config.json", must, "wants to run its own model_file, which is never done")
    optional = {name: _object(folder / name, must) for name in _OPTIONAL if (folder / name).exists()}
    for name, content in {"config.json": config, **optional}.items():
        if not _is_ids(content.get("eos_token_id")):
            raise _refused(folder / name, must, "has an eos_token_id that is neither an id nor a list of ids")
    shards = optional.get("model.safetensors.index.json", {}).get("weight_map", {})
    listed = set(map(str, shards.values())) if isinstance(shards, dict) else set()
    missing = sorted(name for name in listed if not (folder / name).exists())
    if missing or not any(folder.glob(_WEIGHTS)):
        raise _refused(folder, must, f"lacks its weights {', '.join(missing) or _WEIGHTS}")
    for weights in folder.glob(_WEIGHTS):
        _check_complete(weights, must)
    if not any((folder / name).exists() for name in _TOKENIZER):
        raise _refused(folder, must, "lacks a tokenizer (tokenizer.json)")


def check_adapter(folder: Path, role: str) -> dict[str, Any]:
    """Look through an adapter's folder without reading its weights; returns its configuration.

    Raises:
        ValueError: it is no folder, or a file is missing, broken or cut short.
    """
    must = f"{role}.adapter_path must be a folder with an adapter of mlx-lm"
    settings, weights = (folder / name for name in _ADAPTER)
    config = _object(settings, must)
    if not weights.exists():
        raise _refused(folder, must, f"lacks {weights.name}")
    _check_complete(weights, must)
    return config


def files(folder: Path) -> list[Path]:
    """Every file that a model, a tokenizer or a chat template may be read from."""
    return sorted({path for pattern in _READ for path in folder.glob(pattern) if path.is_file()})


def adapter_files(folder: Path) -> list[Path]:
    """An adapter's files."""
    return [folder / name for name in _ADAPTER]


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file that a model, a tokenizer or a chat template may be read from, by its place."""
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in files(folder)}


def adapter_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of an adapter's files, by name."""
    return {path.name: _sha256(path) for path in adapter_files(folder)}


@contextmanager
def one_sentence(words: str) -> Iterator[None]:
    """Turn whatever reading a foreign folder raises into one sentence that begins with `words`.

    Raises:
        ValueError: in place of any other exception.
    """
    try:
        yield
    except Exception as error:
        named = str(error) if isinstance(error, ValueError | OSError | RuntimeError) else repr(error)
        reason = " ".join(named.partition(_SIGNATURES)[0].split())[:300] or type(error).__name__
        raise ValueError(f"{words}: {reason}") from error


def _object(path: Path, must: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _refused(path.parent, must, f"lacks {path.name}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(path, must, f"is no readable JSON ({error})") from error
    if not isinstance(content, dict):
        raise _refused(path, must, "is no JSON object")
    return content


def _is_ids(value: Any) -> bool:
    listed = value if isinstance(value, list) else [value]
    return value is None or all(type(one) is int and one >= 0 for one in listed)


def _check_complete(weights: Path, must: str) -> None:
    try:
        mx.load(str(weights))  # reads the header and compares its offsets with the size of the file
    except RuntimeError as error:
        raise _refused(weights, must, f"is no complete safetensors file ({error})") from error


def _refused(path: Path, must: str, reason: str) -> ValueError:
    return ValueError(f"{must}, but {path} {reason}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
