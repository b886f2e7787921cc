"""Whole models with random weights through `torch.compile(…, backend="rc", fullgraph=True)`, without fallback.

Errors are measured against float64: rc's is at most 1.5 times eager's, or a few units of float32's rounding.
"""

import copy

import pytest
import torch

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
    return transformers.T5EncoderModel(c), torch.randint(0, TOKENS, (2, 9)), "last_hidden_state"


def resnet():
    c = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return transformers.ResNetModel(c), torch.randn(2, 3, 32, 32), "pooler_output"


MODELS = [gpt2, bert, llama, vit, t5, resnet]


def errors(ours, eager, reference):
    scale = reference.abs().max().item()
    error = lambda x: (x.double() - reference).abs().max().item() / scale
    return error(ours), error(eager)


@pytest.mark.parametrize("make", MODELS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_inference(make, dynamic):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x, name = make()
    model.eval()
    run = torch.compile(model, backend="rc", fullgraph=True, dynamic=dynamic)
    wide = copy.deepcopy(model).double()
    with torch.no_grad():
        reference = wide(x.double() if x.is_floating_point() else x)[name]
        ours, eager = errors(run(x)[name], model(x)[name], reference)
    assert ours <= max(1.5 * eager, 16 * EPS), (ours, eager)


@pytest.mark.parametrize("make", MODELS, ids=lambda m: m.__name__)
def test_gradients(make):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x, name = make()
    model.eval()  # no dropout
    wide = copy.deepcopy(model).double()

    def gradients(f, parameters, x):
        return torch.autograd.grad(f(x)[name].square().mean(), parameters, allow_unused=True)

    run = torch.compile(model, backend="rc", fullgraph=True)
    ours = gradients(run, list(model.parameters()), x)
    eager = gradients(model, list(model.parameters()), x)
    reference = gradients(wide, list(wide.parameters()), x.double() if x.is_floating_point() else x)
    # Some gradients are zero but for rounding: all are measured by the greatest.
    scale = max(r.abs().max().item() for r in reference if r is not None)
    for a, b, r in zip(ours, eager, reference):
        # What eager does not reach at all has zeros from AOTAutograd.
        if r is None:
            assert a is None or a.abs().max() == 0
            continue
        error = lambda x: (x.double() - r).abs().max().item() / scale
        assert error(a) <= max(2 * error(b), 64 * EPS)
