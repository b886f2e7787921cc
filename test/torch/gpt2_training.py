"""GPT-2's training by `gpt2-train` beside PyTorch's, from the same weights on the same text.

`gpt2-train` documents the rules that this follows: each byte is a token; sequences lie one after another in the text; the rate grows
linearly for some steps; the gradients' norm is bounded; AdamW decays what has two dimensions or more.
"""
import dataclasses
import pathlib
import re
import subprocess
import time

import torch

from gpt2_model import Size, build, save_weights

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BOUND = 2e-3
"""How far a loss in float32 may be from PyTorch's."""


@dataclasses.dataclass(frozen=True)
class Plan:
    size: Size
    batch: int
    length: int
    rate: float
    steps: int = 50
    warmup: int = 10
    clip: float = 1.0
    text: pathlib.Path = ROOT / "LICENSE-APACHE"

    def arguments(self):
        """Options of `gpt2-train`."""
        names = ("batch", "length", "rate", "steps", "warmup", "clip", "text")
        return [*self.size.arguments(), *(f"--{name}={getattr(self, name)}" for name in names)]

    def batches(self):
        """Ids and labels of each step."""
        tokens = torch.tensor(list(self.text.read_bytes()))
        starts = len(tokens) - self.length
        for step in range(self.steps):
            first = [(step * self.batch + k) * self.length % starts for k in range(self.batch)]
            yield [torch.stack([tokens[s + shift : s + shift + self.length] for s in first]) for shift in (0, 1)]


def pytorch(plan, device):
    """The losses and the seconds of each step."""
    model = build(plan.size).to(device)
    groups = [[p for p in model.parameters() if (p.dim() > 1) == wide] for wide in (True, False)]
    groups = [{"params": p, "weight_decay": decay} for p, decay in zip(groups, (0.1, 0.0))]
    optimizer = torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.95), eps=1e-8, fused=True)
    losses, seconds = [], []
    for step, (ids, labels) in enumerate(plan.batches()):
        start = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * min(1, (step + 1) / plan.warmup)
        optimizer.zero_grad()
        logits = model(ids.to(device)).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.to(device).flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    return losses, seconds


def rc(plan, binary, work, device):
    """The same from `gpt2-train`."""
    weights = work / "start.safetensors"
    save_weights(build(plan.size), weights)
    command = [binary, *plan.arguments(), f"--device={device}", f"--resume={weights}"]
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    weights.unlink()
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\nexited with {done.returncode}:\n{done.stderr}")
    rows = re.findall(r"loss (\S+)  norm \S+  (\S+) ms", done.stdout)
    return [float(loss) for loss, _ in rows], [float(ms) / 1e3 for _, ms in rows]


def largest_difference(ours, theirs):
    assert len(ours) == len(theirs), f"{len(ours)} steps beside {len(theirs)}"
    return max(abs(a - b) for a, b in zip(ours, theirs))
