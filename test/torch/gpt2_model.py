"""GPT-2 with weights from a seed, in PyTorch and in the files that `rc-run` reads. Nothing is downloaded."""
import dataclasses
import os
import pathlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel


@dataclasses.dataclass(frozen=True)
class Size:
    layers: int = 12
    embd: int = 768
    heads: int = 12
    vocab: int = 50257
    positions: int = 1024

    def arguments(self):
        """Options of the `gpt2` program."""
        return [f"--{name}={value}" for name, value in dataclasses.asdict(self).items()]

    def flops(self, batch, length):
        """Floating-point operations of the products and of causal attention."""
        blocks = self.layers * 12 * self.embd * self.embd
        attention = self.layers * self.embd * (length + 1)
        return 2 * batch * length * (blocks + self.vocab * self.embd + attention)

    def parameters(self):
        return self.layers * (12 * self.embd + 13) * self.embd + (self.vocab + self.positions + 2) * self.embd


SMALL = Size()
TINY = Size(layers=2, embd=64, heads=4, vocab=101, positions=32)


def build(size):
    """The model in float32, weights from seed 0. Biases and norms, which start as 0 and 1, are made random too."""
    torch.manual_seed(0)
    config = GPT2Config(n_layer=size.layers, n_embd=size.embd, n_head=size.heads, vocab_size=size.vocab,
                        n_positions=size.positions, use_cache=False, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".bias") or ".ln_" in name:
                weight.add_(torch.randn_like(weight), alpha=0.1)
    return model


def column_major(model):
    """The same weights in the layout for which PyTorch's bfloat16 products on the CPU are not ten times slower."""
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and ".h." in name:
            weight.data = weight.data.t().contiguous().t()
    return model


def token_ids(size, batch, length):
    """The same for a batch and length, whichever others are asked for."""
    generator = torch.Generator().manual_seed(1000 * batch + length)
    return torch.randint(0, size.vocab, (batch, length), generator=generator)


def save_weights(model, path):
    """The state dict without the head, which is tied to the token table."""
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    save_file({name: w.contiguous() for name, w in model.state_dict().items() if name != "lm_head.weight"}, path)


def save_ids(tokens, path):
    np.save(path, tokens.numpy())


def load_array(path):
    """An array that `rc-run` wrote, as a tensor; NumPy has no bfloat16 and reads it as two-byte voids."""
    array = np.load(path)
    if array.dtype.kind == "V":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
