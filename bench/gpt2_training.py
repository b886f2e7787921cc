"""Training GPT-2 small in float32: `gpt2-train` beside PyTorch eager, from the same weights on the same text.

usage: gpt2_training.py BIN [--device cpu|cuda] [--batch 1] [--length 128] [--steps 50] [--tiny]

BIN holds gpt2-train. Prints the losses of both, the largest difference, which may be 2e-3 at most, and the median seconds of a
step of each; the exit status is 1 where a loss is further off.
"""
import argparse
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "test" / "torch"))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("bin", type=pathlib.Path)
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--length", type=int, default=128)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--rate", type=float, default=1e-4)
    p.add_argument("--threads", type=int, default=2, help="cores, on the CPU")
    p.add_argument("--tiny", action="store_true", help="two layers, 64 wide")
    o = p.parse_args()

    import torch
    from gpt2_model import SMALL, TINY
    from gpt2_training import BOUND, Plan, largest_difference, pytorch, rc
    import dataclasses

    torch.set_num_threads(o.threads)
    size = dataclasses.replace(TINY, vocab=257, positions=max(o.length, 32)) if o.tiny else SMALL
    plan = Plan(size, o.batch, o.length, o.rate, o.steps)
    with tempfile.TemporaryDirectory() as work:
        ours, our_seconds = rc(plan, o.bin / "gpt2-train", pathlib.Path(work), o.device)
    theirs, their_seconds = pytorch(plan, o.device)
    for step, (a, b) in enumerate(zip(ours, theirs), 1):
        print(f"step {step:3}  rc {a:.6f}  PyTorch {b:.6f}  difference {a - b:+.1e}")
    difference = largest_difference(ours, theirs)
    medians = [1e3 * statistics.median(seconds) for seconds in (our_seconds, their_seconds)]
    print(f"largest difference {difference:.1e}; a step: rc {medians[0]:.1f} ms, PyTorch eager {medians[1]:.1f} ms")
    sys.exit(difference > BOUND)


if __name__ == "__main__":
    main()
