"""What PyTorch's users expect of a backend: its own switches for looking inside, `reset`, regions that are compiled once, `Trainer`."""

import os
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

import rc.torch  # noqa: F401

SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(7, 13), torch.nn.GELU(), torch.nn.Linear(13, 5))
f = torch.compile(model, backend="rc", fullgraph=True)
with torch.no_grad():
    f(torch.randn(3, 7))
f(torch.randn(3, 7)).sum().backward()
"""


def run(script, **environment):
    env = {k: v for k, v in os.environ.items() if k not in ("RC_DUMP", "RC_LOGS", "TORCH_LOGS", "TORCH_COMPILE_DEBUG")}
    done = subprocess.run([sys.executable, "-c", script], env={**env, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("again", [False, True])
def test_torch_compile_debug_leaves_graphs_and_code(tmp_path, again):
    cache = {"RC_CACHE": "", "RC_CACHE_DIR": str(tmp_path / "cache")}
    if again:
        run(SCRIPT, **cache)
    run(SCRIPT, TORCH_COMPILE_DEBUG="1", TORCH_COMPILE_DEBUG_DIR=str(tmp_path / "debug"), **cache)
    (folder,) = (tmp_path / "debug").rglob("rc")
    texts = {file.name: file.read_text() for file in folder.iterdir()}
    for kind in ("fx.txt", "ir", "compiled.ir", "remarks.txt"):
        assert any(name.endswith(f"_inference.{kind}") for name in texts), texts.keys()
    assert any("host.func" in text for name, text in texts.items() if name.endswith("_inference.compiled.ir"))
    assert any(name.endswith("_backward.compiled.ir") for name in texts), texts.keys()


def test_torch_logs_has_the_code():
    said = run(SCRIPT, TORCH_LOGS="output_code")
    # Initializers, which pack weights where the machine's products want that, come besides.
    functions = re.findall(r"host\.func @(main\w*?)(?:_init)?\(", said)
    assert "__output_code" in said and sorted(set(functions)) == ["main", "main_backward", "main_forward"], said[-2000:]
    assert "host.func" not in run(SCRIPT)
    later = 'import torch\ntorch._logging.set_logs(output_code=True)\n' + SCRIPT
    assert "host.func @main" in run(later)


def test_reset_compiles_anew_and_frees_programs():
    import gc

    from rc._native import Program

    programs = lambda: (gc.collect(), sum(type(x) is Program for x in gc.get_objects()))[1]
    torch.compiler.reset()
    before, model, x = programs(), nn.Linear(7, 5), torch.randn(3, 7)
    counted = []
    f = lambda: torch.compile(model, backend="rc", fullgraph=True)
    with torch.no_grad():
        compiled = f()
        compiled(x), compiled(x)
        counted.append(programs() - before)
        torch.compiler.reset()
        del compiled
        counted.append(programs() - before)
        torch.testing.assert_close(f()(x), model(x))
        counted.append(programs() - before)
    torch.compiler.reset()
    assert counted == [1, 0, 1]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(16, 32), nn.Linear(32, 16), nn.LayerNorm(16)

    @torch.compiler.nested_compile_region
    def forward(self, x):
        return x + self.second(torch.nn.functional.gelu(self.first(self.norm(x))))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("layers", [1, 5])
def test_regions_that_are_compiled_once(training, layers):
    torch.compiler.reset()
    torch.manual_seed(0)
    model, x = nn.Sequential(*(Layer() for _ in range(layers))), torch.randn(3, 16)
    compiled = torch.compile(model, backend="rc", fullgraph=True)
    if not training:
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
        return
    parameters = list(model.parameters())
    expected = torch.autograd.grad(model(x).square().sum(), parameters)
    found = torch.autograd.grad(compiled(x).square().sum(), parameters)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_trainer_of_hugging_face_trains(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    # What `Trainer` tells accelerate stays in the environment.
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "no")
    torch.compiler.reset()

    def losses(compile):
        torch.manual_seed(0)
        config = transformers.GPT2Config(vocab_size=61, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
        model = transformers.GPT2LMHeadModel(config)
        tokens = torch.randint(0, 61, (16, 16), generator=torch.Generator().manual_seed(1))
        data = [{"input_ids": row, "labels": row} for row in tokens]
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=4, max_steps=6, learning_rate=1e-2, logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
            torch_compile=compile, torch_compile_backend="rc" if compile else None,
        )
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data)
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    eager, ours = losses(False), losses(True)
    assert len(ours) == 6 and ours[-1] < ours[0]
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(eager), rtol=1e-3, atol=1e-3)
