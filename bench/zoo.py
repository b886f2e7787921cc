"""The models that people run, with random weights: what `bench/torch_models.py` measures.

A maker gives the model and its arguments. Dropout is off, so that a training step can be compared. A model whose package is
missing raises ImportError, which says which.
"""

from dataclasses import dataclass
from typing import Callable

import networks
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

        return without_chance(getattr(torchvision.models, name)(weights=None)), (pictures(size),), {}

    return make


def timm_model(name: str):
    def make(size):
        import timm

        return timm.create_model(name), (pictures(size),), {}

    return make


def without_chance(model: nn.Module) -> nn.Module:
    """The model with nothing dropped."""
    for module in model.modules():
        if isinstance(module, nn.Dropout) or type(module).__name__ == "StochasticDepth":
            module.p = 0.0
    return model


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


def unet(size):
    return networks.UNet(), (pictures(size, 64), torch.rand(size.images) * 1000), {}


def segformer(size):
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    c = SegformerConfig(num_labels=150, drop_path_rate=0, hidden_dropout_prob=0, classifier_dropout_prob=0)  # "b0"
    return SegformerForSemanticSegmentation(c), (pictures(size, 256),), {}


def qwen3_layers(size):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    c = Qwen3Config(vocab_size=32000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=2, num_attention_heads=16)
    c.num_key_value_heads, c.head_dim, c.use_cache = 8, 128, False  # 0.6B's, but for the layers and the words
    return Qwen3ForCausalLM(c), (ids(size, c.vocab_size),), {}


def graph(network, features: int):
    """Nodes with 8 edges each, at random."""

    def make(size):
        nodes = 64 * size.sequences * size.tokens // 4
        ends = [torch.randint(0, nodes, (8 * nodes,)) for _ in range(2)]
        return network(features), (torch.randn(nodes, features), *ends), {}

    return make


def recommender(size):
    rows = 128 * size.images
    return networks.Recommender(), (torch.randn(rows, 13), torch.randint(0, 10000, (rows, 26))), {}


def of_shape(network, *shape: int):
    """A network of one argument, of so many images."""
    return lambda size: (network(), (torch.randn(size.images, *shape),), {})


MODELS = {
    "resnet50": Entry(torchvision_model("resnet50"), trains=True),
    "bert": Entry(bert_base, trains=True),
    "gpt2": Entry(gpt2, trains=True),
    "llama": Entry(llama, trains=True),
    "vit_l16": Entry(timm_model("vit_large_patch16_224"), trains=True),
    "mobilenet_v3": Entry(torchvision_model("mobilenet_v3_large"), trains=True),
    "efficientnet_b0": Entry(torchvision_model("efficientnet_b0"), trains=True),
    "convnext_tiny": Entry(torchvision_model("convnext_tiny"), trains=True),
    "swin_t": Entry(torchvision_model("swin_t"), trains=True),
    "shufflenet": Entry(torchvision_model("shufflenet_v2_x1_0"), trains=True),
    "coat_lite": Entry(timm_model("coat_lite_mini"), trains=True),
    "segformer": Entry(segformer, trains=True),
    "t5_small": Entry(t5_small, trains=True),
    "qwen3_layers": Entry(qwen3_layers, trains=True),
    "mixtral_layer": Entry(mixtral_layer),
    "whisper_encoder": Entry(whisper_encoder),
    "unet": Entry(unet, trains=True),
    "super_resolution": Entry(of_shape(networks.SuperResolution, 3, 48, 48), trains=True),
    "generator": Entry(of_shape(networks.Generator, 128, 1, 1), trains=True),
    "codes": Entry(of_shape(networks.Codes, 3, 64, 64), trains=True),
    "points": Entry(of_shape(networks.Points, 3, 2048), trains=True),
    "waves": Entry(of_shape(networks.Waves, 1, 4096), trains=True),
    "graph_sums": Entry(graph(networks.GraphSums, 128), trains=True),
    "graph_attention": Entry(graph(networks.GraphAttention, 64), trains=True),
    "recommender": Entry(recommender, trains=True),
}
