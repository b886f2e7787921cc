"""`model.generate` with a compiled forward: the same tokens as eager, and few compiles."""

import pytest
import torch

transformers = pytest.importorskip("transformers")


def model_of(name: str):
    torch.manual_seed(0)
    size = {"vocab_size": 211, "bos_token_id": 0, "eos_token_id": 210, "pad_token_id": 0}
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=1, n_embd=32, n_head=2, n_positions=64, **size)
        return transformers.GPT2LMHeadModel(config).eval()
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(num_hidden_layers=1, hidden_size=32, intermediate_size=48, max_position_embeddings=64, **heads, **size)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize(("name", "cache", "compiles"), [("gpt2", "dynamic", 3), ("llama", "static", 2)])
def test_greedy(name, cache, compiles):
    """A compile for the prompt, and one for a token; where the cache grows, one more that takes its length as a symbol."""
    from rc.torch.backend import rc

    model, ids = model_of(name), torch.randint(1, 200, (2, 11))
    settings = {"do_sample": False, "max_new_tokens": 9, "min_new_tokens": 9}
    if cache == "static":
        settings["cache_implementation"] = "static"
    expected = model.generate(ids, **settings)
    seen = []
    torch._dynamo.reset()
    model.forward = torch.compile(model.forward, backend=lambda gm, inputs: seen.append(gm) or rc(gm, inputs))
    for _ in range(2):
        assert torch.equal(model.generate(ids, **settings), expected)
    assert len(seen) == compiles
