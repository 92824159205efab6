"""A model opened from GGUF files: built of mlx-lm's modules, everything checked before a large tensor is read."""

import importlib
from collections.abc import Mapping
from typing import Any, final

from specfw.models.gguf_file import contents, tokenizer
from specfw.models.gguf_file.architectures import ARCHITECTURES
from specfw.models.gguf_file.architectures.base import ROPE_FACTORS, Architecture, Config, Facts, Keys
from specfw.models.gguf_file.contents import Contents
from specfw.models.pretrained.caches import Quantised, rewindable_caches
from specfw.models.pretrained.folder import one_sentence
from specfw.models.pretrained.model import Origin, Pretrained, Source
from specfw.models.pretrained.precision import FORMATS
from specfw.models.pretrained.tokens import PretrainedTokenizer

import mlx.core as mx
from mlx.utils import tree_flatten

_ARCHITECTURE = "general.architecture"


@final
class GgufSource(Source):
    """The tensors of GGUF files.

    Args:
        files: what they hold.
        architecture: what they belong to.
        config: its hyperparameters.
    """

    def __init__(self, files: Contents, architecture: Architecture, config: Config) -> None:
        self._files, self._architecture, self._config = files, architecture, config

    def identity(self) -> dict[str, Any]:
        return {
            "sha256": contents.digests(self._files.files),
            "architecture": self._files.metadata[_ARCHITECTURE],
            "stored_in": self._files.kinds(),
        }

    def read(self, module: Any) -> None:
        stored = {self._architecture.name(name): tensor for name, tensor in self._files.tensors.items()}
        for name, unread in _parameters(module).items():  # one by one, so that no tensor is held twice but one
            numbers = self._architecture.converted(name, contents.numbers(stored[name]), self._config)
            array = mx.array(numbers).astype(unread.dtype)
            mx.eval(array)
            module.load_weights([(name, array)], strict=False)


def check(path: str, role: str) -> Contents:
    """Look through the files' headers.

    Raises:
        ValueError: a file is missing or broken, or its architecture, tokenizer or number format is not known.
    """
    files = contents.opened(path, role)
    with one_sentence(f"{role}.path {path!r} cannot be read"):
        _architecture(files.metadata)
        tokenizer.check(files.metadata)
    return files


def load(role: str, path: str, dtype: str, quantised: Quantised | None) -> Pretrained:
    """Open a model; its weights are left unread.

    Args:
        role: `target` or `drafter`.
        path: as configured.
        dtype: what it computes in, one of FORMATS or `auto`.
        quantised: the format of keys and values, None for the format it computes in.

    Raises:
        ValueError: it cannot be read; the sentence names `<role>.<field>`.
    """
    files = check(path, role)
    with one_sentence(f"{role}.path {path!r} cannot be read"):
        architecture = _architecture(files.metadata)
        config = architecture.config(_facts(files))
        module = _built(files, architecture, config)
        wrapper = tokenizer.tokenizer(files.metadata)
    computed = _computed_in(dtype)
    module.set_dtype(FORMATS[computed])
    rewindable_caches(module, role)
    origin = Origin(role, path, GgufSource(files, architecture, config), quantised)
    stored = ", ".join(f"{kind} ({count})" for kind, count in files.kinds().items())
    note = f"{role}: tensors stored as {stored} are computed in {computed}"
    with one_sentence(origin.unreadable if quantised is None else origin.unquantisable):
        return Pretrained(origin, module, PretrainedTokenizer(wrapper), frozenset(wrapper.eos_token_ids), (note,))


def _architecture(metadata: Mapping[str, Any]) -> Architecture:
    name = metadata.get(_ARCHITECTURE)
    if name not in ARCHITECTURES:
        raise ValueError(f"{_ARCHITECTURE} must be one of {', '.join(ARCHITECTURES)}, got {name!r}")
    return ARCHITECTURES[name]


def _facts(files: Contents) -> Facts:
    factors = files.tensors.get(ROPE_FACTORS)
    return Facts(
        Keys(files.metadata[_ARCHITECTURE], files.metadata),
        {name: tensor.shape for name, tensor in files.tensors.items()},
        None if factors is None else contents.numbers(factors).tolist(),
    )


def _built(files: Contents, architecture: Architecture, config: Config) -> Any:
    """The module, its arrays of the right shapes and never evaluated.

    Raises:
        ValueError: the file has other tensors than the module has arrays.
    """
    layers = len({name.split(".")[1] for name in files.tensors if name.startswith("blk.")})
    if layers != (told := config["num_hidden_layers"]):
        key = f"{files.metadata[_ARCHITECTURE]}.block_count"
        raise ValueError(f"{key} must be {layers}, the layers that there are tensors of, got {told}")
    of = importlib.import_module(f"mlx_lm.models.{architecture.module}")
    module = of.Model(of.ModelArgs.from_dict(config))
    used = {ROPE_FACTORS} if architecture.rope_factors else set()
    stored = {name: architecture.name(name) for name in files.tensors if name not in used}
    module.sanitize(dict.fromkeys(filter(None, stored.values())))  # a head that the file does not have is the embedding
    wanted = _parameters(module)
    if foreign := [name for name, ours in stored.items() if ours not in wanted]:
        raise ValueError(f"{files.metadata[_ARCHITECTURE]} has no place for the tensors {', '.join(foreign[:3])}")
    if missing := sorted(wanted.keys() - set(stored.values())):
        raise ValueError(f"there are no tensors for {', '.join(missing[:3])}")
    for name, ours in stored.items():
        if (shape := files.tensors[name].shape) != wanted[str(ours)].shape:
            raise ValueError(f"{name} must have the shape {wanted[str(ours)].shape}, got {shape}")
    return module


def _parameters(module: Any) -> dict[str, mx.array]:
    return dict(tree_flatten(module.parameters()))


def _computed_in(dtype: str) -> str:
    if dtype != "auto":
        return dtype
    return "bfloat16" if mx.default_device().type == mx.DeviceType.gpu else "float32"
