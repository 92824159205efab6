"""The architectures that can be built from a GGUF file, by llama.cpp's names."""

from specfw.models.gguf_file.architectures.gemma3 import GEMMA3
from specfw.models.gguf_file.architectures.llama import LLAMA
from specfw.models.gguf_file.architectures.qwen2 import QWEN2

ARCHITECTURES = {"llama": LLAMA, "qwen2": QWEN2, "gemma3": GEMMA3}
