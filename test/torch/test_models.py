"""Whole models with random weights through `torch.compile(…, backend="rc", fullgraph=True)`, without fallback.

Errors are measured against float64: rc's is at most 1.5 times eager's, or a few units of float32's rounding.
"""

import copy
import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import networks

torchvision = pytest.importorskip("torchvision")
transformers = pytest.importorskip("transformers")

EPS = torch.finfo(torch.float32).eps
TOKENS = 101


def gpt2():
    c = transformers.GPT2Config(n_layer=2, n_embd=48, n_head=3, vocab_size=TOKENS, n_positions=64, use_cache=False)
    return transformers.GPT2LMHeadModel(c), torch.randint(0, TOKENS, (2, 13)), "logits"


def bert():
    c = transformers.BertConfig(num_hidden_layers=2, hidden_size=48, num_attention_heads=3, intermediate_size=96, vocab_size=TOKENS)
    return transformers.BertModel(c), torch.randint(0, TOKENS, (2, 13)), "last_hidden_state"


def llama():
    c = transformers.LlamaConfig(num_hidden_layers=2, hidden_size=48, num_attention_heads=4, num_key_value_heads=2,
                                 intermediate_size=80, vocab_size=TOKENS, use_cache=False)  # fmt: skip
    return transformers.LlamaForCausalLM(c), torch.randint(0, TOKENS, (2, 11)), "logits"


def vit():
    c = transformers.ViTConfig(num_hidden_layers=2, hidden_size=48, num_attention_heads=3, intermediate_size=96, image_size=32, patch_size=8)
    return transformers.ViTModel(c), torch.randn(2, 3, 32, 32), "last_hidden_state"


def t5():
    c = transformers.T5Config(num_layers=2, d_model=48, d_kv=16, num_heads=3, d_ff=64, vocab_size=TOKENS, use_cache=False)
    return transformers.T5ForConditionalGeneration(c), (torch.randint(0, TOKENS, (2, 9)), None, torch.randint(0, TOKENS, (2, 7))), "logits"


def resnet():
    c = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return transformers.ResNetModel(c), torch.randn(2, 3, 32, 32), "pooler_output"


def mixtral():
    c = transformers.MixtralConfig(num_hidden_layers=1, hidden_size=48, num_attention_heads=4, num_key_value_heads=2,
                                   intermediate_size=80, num_local_experts=5, vocab_size=TOKENS, use_cache=False)  # fmt: skip
    return transformers.MixtralModel(c), torch.randint(0, TOKENS, (2, 11)), "last_hidden_state"


def whisper():
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    c = transformers.WhisperConfig(d_model=48, encoder_layers=2, encoder_attention_heads=3, encoder_ffn_dim=80, max_source_positions=50)
    return WhisperEncoder(c), torch.randn(2, 80, 100), "last_hidden_state"


def unet():
    return networks.UNet(width=16, embedded=24), (torch.randn(2, 3, 16, 16), torch.rand(2) * 100), None


def mobilenet():
    return torchvision.models.mobilenet_v3_small(num_classes=10), torch.randn(2, 3, 45, 45), None


def efficientnet():
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig

    blocks = [MBConvConfig(1, 3, 1, 16, 8, 1, 1.0, 1.0), MBConvConfig(6, 5, 2, 8, 16, 2, 1.0, 1.0)]
    return EfficientNet(blocks, dropout=0.0, num_classes=10), torch.randn(2, 3, 37, 37), None


def convnext():
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(16, 24, 1), CNBlockConfig(24, None, 1)], num_classes=10), torch.randn(2, 3, 48, 48), None


def swin():
    model = torchvision.models.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.0, num_classes=10)
    return model, torch.randn(2, 3, 56, 56), None


TRAINED = [gpt2, bert, llama, vit, resnet]
MODELS = TRAINED + [t5, mixtral, whisper, unet, mobilenet, efficientnet, convnext, swin]


def call(model, x, name):
    """The result called `name` of a model's, for one argument or several."""
    y = model(*x) if isinstance(x, tuple) else model(x)
    return y if name is None else y[name]


def wide(model, x):
    """The model and its arguments in float64."""
    model = copy.deepcopy(model).double()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # PyTorch's grouped products have no float64
    convert = lambda t: t.double() if t is not None and t.is_floating_point() else t
    return model, tuple(map(convert, x)) if isinstance(x, tuple) else convert(x)


def errors(ours, eager, reference):
    scale = reference.abs().max().item()
    error = lambda x: (x.double() - reference).abs().max().item() / scale
    return error(ours), error(eager)


CASES = [(make, False) for make in MODELS] + [(make, True) for make in TRAINED + [t5, whisper]]


@pytest.mark.parametrize("make, dynamic", CASES, ids=[f"{m.__name__}-{'dynamic' if d else 'static'}" for m, d in CASES])
def test_inference(make, dynamic):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x, name = make()
    model.eval()
    run = torch.compile(model, backend="rc", fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        reference = call(*wide(model, x), name)
        ours, eager = errors(call(run, x, name), call(model, x, name), reference)
    assert ours <= max(1.5 * eager, 16 * EPS), (ours, eager)


@pytest.mark.parametrize("make", TRAINED, ids=lambda m: m.__name__)
def test_gradients(make):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x, name = make()
    model.eval()  # no dropout

    def gradients(f, parameters, x):
        return torch.autograd.grad(call(f, x, name).square().mean(), parameters, allow_unused=True)

    run = torch.compile(model, backend="rc", fullgraph=True)
    ours = gradients(run, list(model.parameters()), x)
    eager = gradients(model, list(model.parameters()), x)
    wider, wide_x = wide(model, x)
    reference = gradients(wider, list(wider.parameters()), wide_x)
    # Some gradients are zero but for rounding: all are measured by the greatest.
    scale = max(r.abs().max().item() for r in reference if r is not None)
    for a, b, r in zip(ours, eager, reference):
        # What eager does not reach at all has zeros from AOTAutograd.
        if r is None:
            assert a is None or a.abs().max() == 0
            continue
        error = lambda x: (x.double() - r).abs().max().item() / scale
        assert error(a) <= max(2 * error(b), 64 * EPS)


@pytest.mark.parametrize("ends", [[3, 3, 11, 20], [0, 20, 20, 20], [5, 10, 15, 20]])
def test_grouped_products(ends):
    torch.manual_seed(0)
    torch._dynamo.reset()
    x, w, offs = torch.randn(20, 8), torch.randn(4, 8, 12), torch.tensor(ends, dtype=torch.int32)
    y = torch.compile(lambda *a: torch._grouped_mm(a[0], a[1], offs=a[2]), backend="rc", fullgraph=True)(x, w, offs)
    starts = [0, *ends]
    reference = torch.cat([x[a:b].double() @ w[g].double() for g, (a, b) in enumerate(zip(starts, ends))])
    assert (y.double() - reference).abs().max() <= 16 * EPS * reference.abs().max()


@pytest.mark.parametrize("ends", [[3, 3, 11, 20], [0, 20, 20, 20], [0, 0, 0, 17]])
def test_products_of_grouped_columns(ends):
    torch.manual_seed(0)
    torch._dynamo.reset()
    x, y, offs = torch.randn(20, 8), torch.randn(20, 12), torch.tensor(ends, dtype=torch.int32)
    z = torch.compile(lambda *a: torch._grouped_mm(a[0].T, a[1], offs=a[2]), backend="rc", fullgraph=True)(x, y, offs)
    starts = [0, *ends]
    reference = torch.stack([x[a:b].double().T @ y[a:b].double() for a, b in zip(starts, ends)])
    assert (z.double() - reference).abs().max() <= 32 * EPS * reference.abs().max()


def test_gradients_of_grouped_products():
    torch.manual_seed(0)
    torch._dynamo.reset()
    ends = [3, 3, 11, 20]
    x, w, offs = torch.randn(20, 8), torch.randn(4, 8, 12), torch.tensor(ends, dtype=torch.int32)
    weights = torch.randn(20, 12)
    apart = lambda x, w, starts=(0, 3, 3, 11): torch.cat([x[a:b] @ w[g] for g, (a, b) in enumerate(zip(starts, ends))])
    grouped = torch.compile(lambda x, w: torch._grouped_mm(x, w, offs=offs), backend="rc", fullgraph=True)
    gradients = lambda f, *a: torch.autograd.grad((f(*a) * weights.to(a[0].dtype)).sum(), a)
    leaf = lambda v, dtype=torch.float32: v.to(dtype, copy=True).requires_grad_()
    ours = gradients(grouped, leaf(x), leaf(w))
    reference = gradients(apart, leaf(x, torch.float64), leaf(w, torch.float64))
    for a, r in zip(ours, reference):
        assert (a.double() - r).abs().max() <= 64 * EPS * r.abs().max()
