"""How gguf_reference.json was made: transformers on torch, float32, one thread, reads the same files.

In an environment of its own, with torch, transformers and gguf; the files are what test_models_gguf_packages.py
leaves in the cache:

    python tests/make_gguf_reference.py SmolLM2-135M-Instruct.Q4_1.gguf gemma-3-270m-q4_k_m.gguf

For each prompt: its ids by transformers' own conversion of the file's tokenizer, the greedy continuation, the least
difference between the two largest logits on the way, and the largest logits after the prompt. Those of Gemma are
computed with the embedding's factor rounded to bfloat16, as the model was trained and as mlx-lm has it; its ids with
the factor that transformers has in float32, which gave the same ids.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": [
        "The capital of France is",
        "def fibonacci(n):\n    ",
        [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "Name three primary colors."}],
    ],
    "gemma-3-270m-q4_k_m.gguf": ["The capital of France is", "def fibonacci(n):\n    "],
}
TOKENS = 24
LARGEST = 16


def continued(model, ids):
    """Greedy ids, and the least difference of the two largest logits."""
    made, gaps = [], []
    for _ in range(TOKENS):
        top = model(torch.tensor([ids + made])).logits[0, -1].topk(2)
        made.append(int(top.indices[0]))
        gaps.append(float(top.values[0] - top.values[1]))
    return made, min(gaps)


def references(file):
    place = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(**place)
    model = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32).eval()
    told = []
    for prompt in PROMPTS[file.name]:
        template = {"add_generation_prompt": True, "return_dict": False}
        chat = isinstance(prompt, list)
        ids = list(tokenizer.apply_chat_template(prompt, **template) if chat else tokenizer.encode(prompt))
        made, gap = continued(model, ids)
        told.append({"prompt": prompt, "ids": ids, "greedy": made, "least_gap": gap})
    if hasattr(model.model.embed_tokens, "embed_scale"):
        scale = model.model.embed_tokens.embed_scale
        scale.copy_(scale.to(torch.bfloat16))
    for reference in told:
        largest = model(torch.tensor([reference["ids"]])).logits[0, -1].topk(LARGEST)
        reference["largest"] = dict(zip(map(str, largest.indices.tolist()), largest.values.tolist(), strict=True))
    return told


if __name__ == "__main__":
    torch.set_num_threads(1)
    made_with = {name: version(name) for name in ("torch", "transformers", "gguf")}
    with torch.no_grad():
        files = {path.name: references(path) for path in map(Path, sys.argv[1:])}
    content = json.dumps({"made_with": made_with, "files": files}, indent=1, ensure_ascii=False)
    (Path(__file__).parent / "gguf_reference.json").write_text(content + "\n", encoding="utf-8")
