"""A trained model in mlx-lm's layout: from a local folder, from the Hugging Face hub, or shipped with the package."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from specfw.models.base import LanguageModel, ModelSpec
from specfw.models.pretrained import folder
from specfw.registry import register, require

_BITS, _GROUPS = (2, 4, 8), (32, 64, 128)


@final
@register("model")
@dataclass(frozen=True, kw_only=True)
class Checkpoint(ModelSpec):
    """A checkpoint; code that lies in it is never run.

    Attributes:
        path: a folder with config.json, model*.safetensors and a tokenizer; a model of the hub, written
            organisation/model; or `zoo:target`, `zoo:drafter`.
        revision: branch, tag or commit on the hub; null is the main branch.
        adapter_path: a folder with adapter_config.json and adapters.safetensors, as `mlx_lm.lora` writes them.
        dtype: what it computes in; `stored` leaves weights as they are, quantised ones too; `auto` is float32 on
            a CPU (quantised weights are dequantised) and as stored on a GPU.
        kv_bits: bits of a quantised number in the cache, 2, 4 or 8, from the first token on; null keeps keys and
            values as they are computed.
        kv_group_size: numbers that share a scale in a quantised cache: 32, 64 or 128, a divisor of the heads' size.
        prompt_cache: always null: a saved cache does not say which tokens it holds.
        max_kv_size: always null: a cache that overwrites its oldest tokens cannot go back.
    """

    path: str
    revision: str | None = None
    adapter_path: str | None = None
    dtype: Literal["auto", "stored", "float32", "float16", "bfloat16"] = "auto"
    kv_bits: int | None = None
    kv_group_size: int = 64
    prompt_cache: str | None = None
    max_kv_size: int | None = None

    def __post_init__(self) -> None:
        allowed = "a folder, a model of the hub, zoo:target or zoo:drafter"
        require("path", bool(self.path.strip()), allowed, self.path)
        require("kv_bits", self.kv_bits in (None, *_BITS), "null, 2, 4 or 8", self.kv_bits)
        require("kv_group_size", self.kv_group_size in _GROUPS, "32, 64 or 128", self.kv_group_size)
        why = "a saved cache does not say which tokens it holds, so neither drafter nor penalties could know them"
        require("prompt_cache", self.prompt_cache is None, f"null ({why})", self.prompt_cache)
        why = "a cache that overwrites its oldest tokens cannot be rewound past them"
        require("max_kv_size", self.max_kv_size is None, f"null ({why})", self.max_kv_size)

    def check(self, role: str) -> None:
        self._found(role)

    def files(self, role: str) -> tuple[Path, ...]:
        adapter = [] if self._adapter is None else folder.adapter_files(self._adapter)
        return (*folder.files(folder.locate(self.path, self.revision, role).folder), *adapter)

    def load(self, role: str) -> LanguageModel:
        found = self._found(role)
        from specfw.models.pretrained.caches import Quantised
        from specfw.models.pretrained.model import Files, load

        quantised = None if self.kv_bits is None else Quantised(self.kv_bits, self.kv_group_size)
        return load(role, self.path, Files(found, self._adapter), self.dtype, quantised)

    @property
    def _adapter(self) -> Path | None:
        return None if self.adapter_path is None else Path(self.adapter_path).expanduser()

    def _found(self, role: str) -> folder.Found:
        if self._adapter is not None:
            folder.check_adapter(self._adapter, role)
        found = folder.locate(self.path, self.revision, role)
        folder.check(found.folder, role)
        return found
