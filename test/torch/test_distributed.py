"""Training in two processes, beside one in eager: DistributedDataParallel, and FSDP2 layer by layer. On the CPU by gloo, and on two GPUs where they are."""

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WORLD, STEPS = 2, 4


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 13), Block(13), Block(13), nn.Linear(13, 5))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(6, 7, generator=generator), torch.randint(0, 5, (6,), generator=generator)


def train(net, run, device, part=slice(None)):
    """Trains on a part of each batch; parts are equal, so that the mean of their gradients is that of the batch."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for step in range(STEPS):
        x, y = (t[part].to(device) for t in batch(step))
        optimizer.zero_grad()
        F.cross_entropy(run(x), y).backward()
        optimizer.step()


def data_parallel(net, device):
    wrapped = DistributedDataParallel(net, device_ids=[device] if device.type == "cuda" else None)
    return torch.compile(wrapped, backend="rc")


def sharded(net, device):
    for layer in net:
        if isinstance(layer, Block):
            layer.compile(backend="rc")
        fully_shard(layer)
    return fully_shard(net)


KINDS = {"data parallel": data_parallel, "sharded": sharded}


def work(rank: int, port: int, kind: str, where: str, folder: str):
    """One of the processes. Leaves the parameters, and how many graphs rc differentiated, in a file."""
    import rc.torch.backend as backend

    found, compile_step = [], backend.compile_step
    backend.compile_step = lambda *args: found.append(compile_step(*args)) or found[-1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    device = torch.device(where, rank) if where == "cuda" else torch.device("cpu")
    if where == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if where == "cuda" else "gloo", rank=rank, world_size=WORLD)
    try:
        net = model().to(device)
        train(net, KINDS[kind](net, device), device, slice(3 * rank, 3 * rank + 3))
        whole = lambda p: p.full_tensor() if hasattr(p, "full_tensor") else p
        parameters = [whole(p.detach()).cpu() for p in net.parameters()]
        torch.save((parameters, sum(step is not None for step in found)), f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()
    # Gloo's threads may still hold tensors, and to let go of one while the interpreter shuts down aborts the process (pytorch/pytorch#190489).
    os._exit(0)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


two_gpus = pytest.mark.skipif(torch.cuda.device_count() < WORLD, reason="needs two GPUs")


@pytest.mark.skipif(not dist.is_available(), reason="a PyTorch without torch.distributed")
@pytest.mark.parametrize("where", ["cpu", pytest.param("cuda", marks=two_gpus)])
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_learn_what_one_does(kind, where, tmp_path):
    mp.spawn(work, (free_port(), kind, where, str(tmp_path)), WORLD)
    net = model()
    train(net, net, "cpu")
    for rank in range(WORLD):
        parameters, own = torch.load(tmp_path / f"{rank}.pt")
        assert own > 0, "no graph was differentiated by rc"
        for ours, theirs in zip(parameters, net.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs.detach(), rtol=1e-3, atol=1e-4)
