"""A trained model in GGUF, llama.cpp's format: one file, or the parts of one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from specfw.models.base import LanguageModel, ModelSpec
from specfw.registry import register, require

_BITS, _GROUPS = (2, 4, 8), (32, 64, 128)


@final
@register("model")
@dataclass(frozen=True, kw_only=True)
class Gguf(ModelSpec):
    """A model whose weights, tokenizer and chat template are read from GGUF files.

    Attributes:
        path: a file, any part of a model in several (<name>-00001-of-00004.gguf), or a folder that holds one model.
        dtype: what it computes in, whatever the files store: `auto` is float32 on a CPU and bfloat16 on a GPU.
        kv_bits: bits of a quantised number in the cache, 2, 4 or 8; null keeps keys and values as they are computed.
        kv_group_size: numbers that share a scale in a quantised cache: 32, 64 or 128, a divisor of the heads' size.
    """

    path: str
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    kv_bits: int | None = None
    kv_group_size: int = 64

    def __post_init__(self) -> None:
        require("path", bool(self.path.strip()), "a GGUF file or a folder of its parts", self.path)
        require("kv_bits", self.kv_bits in (None, *_BITS), "null, 2, 4 or 8", self.kv_bits)
        require("kv_group_size", self.kv_group_size in _GROUPS, "32, 64 or 128", self.kv_group_size)

    def check(self, role: str) -> None:
        from specfw.models.gguf_file import model

        model.check(self.path, role)

    def files(self, role: str) -> tuple[Path, ...]:
        from specfw.models.gguf_file import contents

        return contents.located(self.path, role)

    def load(self, role: str) -> LanguageModel:
        from specfw.models.gguf_file import model
        from specfw.models.pretrained.caches import Quantised

        quantised = None if self.kv_bits is None else Quantised(self.kv_bits, self.kv_group_size)
        return model.load(role, self.path, self.dtype, quantised)
