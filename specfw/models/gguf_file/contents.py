"""A model in one GGUF file or in its parts: found, put together, or refused in one sentence."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from specfw.models.gguf_file import header
from specfw.models.gguf_file.header import Tensor

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_MOST_BLOCKS = 2**14  # turned into numbers at a time: gguf's own slices of 16 rows are ten times slower


class Contents(NamedTuple):
    """What the files of a model hold.

    Attributes:
        files: the file, or its parts in order.
        metadata: by key, of the first part.
        tensors: by name, of all parts.
    """

    files: tuple[Path, ...]
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def kinds(self) -> dict[str, int]:
        """How many tensors are stored in which format."""
        return dict(sorted(Counter(tensor.kind.name for tensor in self.tensors.values()).items()))


def opened(path: str, role: str) -> Contents:
    """The files of `path`, their headers read.

    Args:
        path: a file, any part of a model in several, or a folder that holds one model.
        role: for messages.

    Raises:
        ValueError: a file is missing, cut short or no GGUF file, or a tensor's format cannot be turned into numbers.
    """
    must = _must(role)
    files = located(path, role)
    headers = [_header(file, must) for file in files]
    metadata = headers[0].metadata
    tensors = {name: tensor for one in headers for name, tensor in one.tensors.items()}
    parts = metadata.get("split.count", 1) or 1
    if parts != len(files):
        raise ValueError(f"{must}, but {files[0]} is one of {parts} parts and not named <name>-00001-of-<count>.gguf")
    if len(tensors) != (count := metadata.get("split.tensors.count", len(tensors))):
        raise ValueError(f"{must}, but the parts of {files[0]} hold {len(tensors)} of its {count} tensors")
    for tensor in tensors.values():
        if tensor.kind not in known_kinds():
            known = ", ".join(kind.name for kind in known_kinds())
            raise ValueError(f"{must}, but {tensor.file} stores {tensor.name} as {tensor.kind.name}; known: {known}")
    return Contents(files, metadata, tensors)


def located(path: str, role: str) -> tuple[Path, ...]:
    """The file that `path` names, or the parts of the model in order.

    Raises:
        ValueError: a file is missing.
    """
    return _located(Path(path).expanduser(), _must(role))


@cache
def known_kinds() -> tuple[GGMLQuantizationType, ...]:
    """The formats that the package `gguf` turns into numbers."""
    return tuple(kind for kind in GGML_QUANT_SIZES if _is_known(kind))


def numbers(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The numbers of a tensor, float32 in its shape; read from its file.

    Raises:
        ValueError: the file has become shorter.
    """
    block, block_bytes = GGML_QUANT_SIZES[tensor.kind]
    blocks = tensor.size_bytes // block_bytes
    result = np.empty((blocks, block), dtype=np.float32)
    with tensor.file.open("rb") as file:
        file.seek(tensor.start)
        for start in range(0, blocks, _MOST_BLOCKS):
            part = result[start : start + _MOST_BLOCKS]
            stored = np.frombuffer(file.read(len(part) * block_bytes), dtype=np.uint8)
            part[:] = dequantize(stored.reshape(1, -1), tensor.kind).reshape(part.shape)
    return result.reshape(tensor.shape)


def digests(files: tuple[Path, ...]) -> dict[str, str]:
    """SHA-256 of every file, by name."""
    told = {}
    for path in files:
        with path.open("rb") as file:
            told[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return told


def _must(role: str) -> str:
    return f"{role}.path must be a GGUF file, or a folder with the parts of one"


def _located(path: Path, must: str) -> tuple[Path, ...]:
    if path.is_dir():
        path = _only_model(path, must)
    if not path.is_file():
        raise ValueError(f"{must}, got {str(path)!r}")
    part = _PART.fullmatch(path.name)
    if part is None:
        return (path,)
    count = int(part["count"])
    files = tuple(path.with_name(f"{part['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1))
    missing = [file.name for file in files if not file.is_file()]
    if missing or path not in files:
        raise ValueError(f"{must}, but {path.parent} lacks the parts {', '.join(missing)}")
    return files


def _only_model(folder: Path, must: str) -> Path:
    files = sorted(folder.glob("*.gguf"))
    models = {(part["stem"], part["count"]) if (part := _PART.fullmatch(file.name)) else file for file in files}
    if len(models) != 1:
        names = ", ".join(file.name for file in files[:5]) or "no *.gguf"
        raise ValueError(f"{must}, but {folder} holds {names}: name one file")
    return files[0]


def _header(file: Path, must: str) -> header.Header:
    try:
        return header.read(file)
    except (ValueError, OSError) as error:
        raise ValueError(f"{must}, but {file} {error}") from error


def _is_known(kind: GGMLQuantizationType) -> bool:
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8), kind)
    except NotImplementedError:
        return False
    return True
