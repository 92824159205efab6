"""A checkpoint folder in mlx-lm's layout: found, looked through, identified, or refused in one sentence."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx

ZOO = {f"zoo:{name}": Path(__file__).parents[2] / "zoo" / name for name in ("target", "drafter")}

_WEIGHTS = "model*.safetensors"
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "merges.txt")
_OPTIONAL = ("generation_config.json", "tokenizer_config.json", "model.safetensors.index.json")


def locate(path: str, role: str) -> Path:
    """The folder that `path` names.

    Raises:
        ValueError: it is neither a shipped model nor a local folder.
    """
    folder = ZOO.get(path) or Path(path).expanduser()
    if not folder.is_dir():
        shipped = " or ".join(ZOO)
        raise ValueError(
            f"{role}.path must be a local folder in mlx-lm's layout, or {shipped} "
            f"(ids of the Hugging Face hub are not offered yet), got {path!r}"
        )
    return folder


def check(folder: Path, role: str) -> None:
    """Look through a folder without reading its weights.

    Raises:
        ValueError: a file is missing, broken or cut short, or the checkpoint wants its own code to be run.
    """
    config = _object(folder / "config.json", role)
    if not isinstance(config.get("model_type"), str):
        raise _refused(folder / "config.json", role, "names no model_type")
    if config.get("model_file") is not None:
        raise _refused(folder / "config.json", role, "wants to run its own model_file, which is never done")
    optional = {name: _object(folder / name, role) for name in _OPTIONAL if (folder / name).exists()}
    shards = set(optional.get("model.safetensors.index.json", {}).get("weight_map", {}).values())
    missing = sorted(name for name in shards if not (folder / name).exists())
    if missing or not any(folder.glob(_WEIGHTS)):
        raise _refused(folder, role, f"lacks its weights {', '.join(missing) or _WEIGHTS}")
    for weights in folder.glob(_WEIGHTS):
        _check_complete(weights, role)
    if not any((folder / name).exists() for name in _TOKENIZER):
        raise _refused(folder, role, "lacks a tokenizer (tokenizer.json)")


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the files that decide what the model computes, by name."""
    files = {*folder.glob(_WEIGHTS), *(folder / name for name in ("config.json", *_TOKENIZER))}
    return {path.name: _sha256(path) for path in sorted(files) if path.exists()}


@contextmanager
def one_sentence(path: str, role: str) -> Iterator[None]:
    """Turn whatever reading a foreign folder raises into one sentence that names the field.

    Raises:
        ValueError: in place of any other exception.
    """
    try:
        yield
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise ValueError(f"{role}.path {path!r} cannot be loaded: {reason}") from error


def _object(path: Path, role: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _refused(path.parent, role, f"lacks {path.name}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(path, role, f"is no readable JSON ({error})") from error
    if not isinstance(content, dict):
        raise _refused(path, role, "is no JSON object")
    return content


def _check_complete(weights: Path, role: str) -> None:
    try:
        mx.load(str(weights))  # reads the header and compares its offsets with the size of the file
    except RuntimeError as error:
        raise _refused(weights, role, f"is no complete safetensors file ({error})") from error


def _refused(path: Path, role: str, reason: str) -> ValueError:
    return ValueError(f"{role}.path must be a checkpoint in mlx-lm's layout, but {path} {reason}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
