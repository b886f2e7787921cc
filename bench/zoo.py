"""The models that people run, with random weights: what `bench/torch_models.py` measures.

A maker gives the model and its arguments. Dropout is off, so that a training step can be compared. A model whose package is
missing raises ImportError, which says which.
"""

import math
from dataclasses import dataclass
from typing import Callable

import torch
from torch import nn


@dataclass(frozen=True)
class Size:
    """What a run asks of the makers: `images` and `sequences` in a batch, tokens in a sequence, layers of the large models."""

    images: int
    sequences: int
    tokens: int
    layers: int


@dataclass(frozen=True)
class Entry:
    make: Callable[[Size], tuple[nn.Module, tuple, dict]]
    trains: bool = False
    """Whether a training step's gradients are compared too."""


def pictures(size: Size, pixels: int = 224) -> torch.Tensor:
    return torch.randn(size.images, 3, pixels, pixels)


def ids(size: Size, words: int) -> torch.Tensor:
    return torch.randint(0, words, (size.sequences, size.tokens))


def torchvision_model(name: str):
    def make(size):
        import torchvision

        return getattr(torchvision.models, name)(weights=None), (pictures(size),), {}

    return make


def vit_large(size):
    import timm

    return timm.create_model("vit_large_patch16_224"), (pictures(size),), {}


def bert_base(size):
    from transformers import BertConfig, BertModel

    c = BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    return BertModel(c), (ids(size, c.vocab_size),), {}


def gpt2(size):
    from transformers import GPT2Config, GPT2LMHeadModel

    c = GPT2Config(use_cache=False, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return GPT2LMHeadModel(c), (ids(size, c.vocab_size),), {}


def llama(size):
    from transformers import LlamaConfig, LlamaForCausalLM

    c = LlamaConfig(num_hidden_layers=size.layers, use_cache=False)  # the other sizes are the 7B model's
    return LlamaForCausalLM(c), (ids(size, c.vocab_size),), {}


def mixtral_layer(size):
    from transformers import MixtralConfig, MixtralModel

    c = MixtralConfig(num_hidden_layers=1, use_cache=False, vocab_size=1000)  # 8x7B's, but for the words
    return MixtralModel(c), (ids(size, c.vocab_size),), {}


def t5_small(size):
    from transformers import T5Config, T5ForConditionalGeneration

    c = T5Config(use_cache=False, dropout_rate=0)
    return T5ForConditionalGeneration(c), (), {"input_ids": ids(size, c.vocab_size), "decoder_input_ids": ids(size, c.vocab_size)}


def whisper_encoder(size):
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    c = WhisperConfig(d_model=512, encoder_layers=6, encoder_attention_heads=8, encoder_ffn_dim=2048)  # "base"
    return WhisperEncoder(c), (torch.randn(size.sequences, 80, 3000),), {}


class Residual(nn.Module):
    """Two convolutions with group norm, shifted by an embedding of the time step, and a way around them."""

    def __init__(self, inputs: int, outputs: int, embedded: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shift = nn.Linear(embedded, outputs)
        self.around = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, t):
        y = self.conv1(nn.functional.silu(self.norm1(x)))
        y = y + self.shift(nn.functional.silu(t))[:, :, None, None]
        return self.around(x) + self.conv2(nn.functional.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, channels: int, heads: int = 4):
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(8, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        n, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(-1, -2).reshape(n, c, h, w))


class UNet(nn.Module):
    """The network of a small diffusion model: three resolutions, attention at the lowest, skips between equal ones."""

    def __init__(self, width: int = 64, embedded: int = 256, levels=(1, 2, 4)):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, embedded), nn.SiLU(), nn.Linear(embedded, embedded))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        channels = [width * level for level in levels]
        ends = list(zip([width, *channels], channels))
        self.down = nn.ModuleList(Residual(a, b, embedded) for a, b in ends)
        self.shrink = nn.ModuleList(nn.Conv2d(c, c, 3, stride=2, padding=1) for c in channels[:-1])
        self.middle = Attention(channels[-1])
        self.up = nn.ModuleList(Residual(2 * b, a, embedded) for a, b in reversed(ends))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(a, a, 4, stride=2, padding=1) for a, _ in reversed(ends[1:]))
        self.last = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x, step):
        half = self.width // 2
        rates = torch.exp(torch.arange(half, device=x.device, dtype=x.dtype) * (-math.log(10000.0) / half))
        angles = step[:, None] * rates
        t = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        y, skips = self.first(x), []
        for i, block in enumerate(self.down):
            y = block(y, t)
            skips.append(y)
            y = self.shrink[i](y) if i < len(self.shrink) else self.middle(y)
        for i, block in enumerate(self.up):
            y = block(torch.cat([y, skips.pop()], 1), t)
            y = self.grow[i](y) if i < len(self.grow) else y
        return self.last(y)


def unet(size):
    return UNet(), (pictures(size, 64), torch.rand(size.images) * 1000), {}


MODELS = {
    "resnet50": Entry(torchvision_model("resnet50"), trains=True),
    "bert": Entry(bert_base, trains=True),
    "gpt2": Entry(gpt2, trains=True),
    "llama": Entry(llama, trains=True),
    "vit_l16": Entry(vit_large, trains=True),
    "mobilenet_v3": Entry(torchvision_model("mobilenet_v3_large")),
    "efficientnet_b0": Entry(torchvision_model("efficientnet_b0")),
    "convnext_tiny": Entry(torchvision_model("convnext_tiny")),
    "swin_t": Entry(torchvision_model("swin_t")),
    "t5_small": Entry(t5_small),
    "mixtral_layer": Entry(mixtral_layer),
    "whisper_encoder": Entry(whisper_encoder),
    "unet": Entry(unet),
}
