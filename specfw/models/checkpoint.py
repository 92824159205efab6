"""A trained model in mlx-lm's layout, from a local folder or shipped with the package."""

from dataclasses import dataclass
from typing import Literal, final

from specfw.models.base import LanguageModel, ModelSpec
from specfw.models.pretrained import folder
from specfw.registry import register, require


@final
@register("model")
@dataclass(frozen=True, kw_only=True)
class Checkpoint(ModelSpec):
    """A checkpoint folder; code that lies in it is never run.

    Attributes:
        path: a folder with config.json, model*.safetensors and a tokenizer, or `zoo:target`, `zoo:drafter`.
        dtype: what it computes in; `auto` is float32 on a CPU (quantised weights are dequantised) and as stored
            on a GPU.
    """

    path: str
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"

    def __post_init__(self) -> None:
        require("path", bool(self.path.strip()), "a folder, zoo:target or zoo:drafter", self.path)

    def check(self, role: str) -> None:
        folder.check(folder.locate(self.path, role), role)

    def load(self, role: str) -> LanguageModel:
        self.check(role)
        from specfw.models.pretrained.model import load

        return load(self.path, folder.locate(self.path, role), self.dtype, role)
