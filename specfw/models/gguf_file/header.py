"""What a GGUF file says of itself: its metadata, and where its tensors lie. Weights are left unread.

The package `gguf` has a reader of its own; it makes an array of every word of the vocabulary, and takes a minute
for 262,144 of them. Format: ggml's docs/gguf.md, versions 2 and 3, little-endian.
"""

import mmap
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, final

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType, GGUFValueType

VERSIONS = (2, 3)

_MAGIC = b"GGUF"
_SCALARS = {
    GGUFValueType.UINT8: "<B",
    GGUFValueType.INT8: "<b",
    GGUFValueType.UINT16: "<H",
    GGUFValueType.INT16: "<h",
    GGUFValueType.UINT32: "<I",
    GGUFValueType.INT32: "<i",
    GGUFValueType.FLOAT32: "<f",
    GGUFValueType.BOOL: "<?",
    GGUFValueType.UINT64: "<Q",
    GGUFValueType.INT64: "<q",
    GGUFValueType.FLOAT64: "<d",
}
_U32, _U64 = Struct("<I"), Struct("<Q")


class Tensor(NamedTuple):
    """Where a tensor lies.

    Attributes:
        file: the file that holds it.
        name: as llama.cpp names it.
        kind: the format of its numbers.
        shape: rows first, as numpy has it; the file has it the other way round.
        start: its first byte.
        size_bytes: its bytes in the file.
    """

    file: Path
    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    start: int
    size_bytes: int


class Header(NamedTuple):
    """Metadata by key, arrays of numbers as numpy arrays; and the tensors by name."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def read(path: Path) -> Header:
    """The header of one file.

    Raises:
        ValueError: it is no GGUF file, of another version, or cut short; the sentence goes on after the path.
    """
    if not path.stat().st_size:
        raise ValueError("is cut short: it is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Cursor(data).header(path)


@final
class _Cursor:
    """A place in a file, that goes on as things are read."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._at, self._end = data, 0, len(data)

    def header(self, path: Path) -> Header:
        if self._take(len(_MAGIC)) != _MAGIC:
            raise ValueError("is no GGUF file: it does not begin with GGUF")
        version = self._number(_U32)
        if version not in VERSIONS:
            raise ValueError(f"has GGUF version {version}; known: {', '.join(map(str, VERSIONS))}, little-endian")
        tensors, entries = self._number(_U64), self._number(_U64)
        metadata = {self._text(): self._value(self._number(_U32)) for _ in range(entries)}
        described = [self._description() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment < 1:
            raise ValueError(f"has general.alignment {alignment}, which is no whole number, at least 1")
        data_start = -(-self._at // alignment) * alignment
        return Header(metadata, {tensor.name: tensor for tensor in self._placed(path, described, data_start)})

    def _placed(self, path: Path, described: list[Any], data_start: int) -> Iterator[Tensor]:
        for name, kind, shape, offset in described:
            block, block_bytes = GGML_QUANT_SIZES[kind]
            if shape[-1] % block:
                raise ValueError(f"has rows of {shape[-1]} in {name}, no multiple of the {block} of {kind.name}")
            tensor = Tensor(path, name, kind, shape, data_start + offset, prod(shape) // block * block_bytes)
            if (end := tensor.start + tensor.size_bytes) > self._end:
                raise ValueError(f"is cut short: {name} ends at byte {end:,} of {self._end:,}")
            yield tensor

    def _description(self) -> tuple[str, GGMLQuantizationType, tuple[int, ...], int]:
        name = self._text()
        shape = tuple(self._number(_U64) for _ in range(self._number(_U32)))[::-1]
        kind = self._number(_U32)
        if kind not in set(GGMLQuantizationType):
            raise ValueError(f"has {name} in a format of number {kind}, which is none of gguf's")
        return name, GGMLQuantizationType(kind), shape or (1,), self._number(_U64)

    def _take(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        if self._at > self._end:
            raise ValueError(f"is cut short: its header goes on after its {self._end:,} bytes")
        return self._data[start : self._at]

    def _number(self, form: Struct) -> Any:
        return form.unpack(self._take(form.size))[0]

    def _text(self) -> str:
        return self._take(self._number(_U64)).decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == GGUFValueType.STRING:
            return self._text()
        if kind == GGUFValueType.ARRAY:
            return self._array(self._number(_U32), self._number(_U64))
        return self._number(Struct(self._scalar(kind)))

    def _array(self, kind: int, count: int) -> Any:
        if kind == GGUFValueType.STRING:
            return [self._text() for _ in range(count)]
        numbers = np.dtype(self._scalar(kind))
        return np.frombuffer(self._take(count * numbers.itemsize), numbers)

    def _scalar(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise ValueError(f"has metadata in a format of number {kind}, which is none of gguf's")
        return _SCALARS[GGUFValueType(kind)]
