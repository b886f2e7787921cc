"""Plans random instances of several shapes with rc-plan: the arena over the lower bound, and the time that planning takes.

    cargo build --release -p rc-tools --bin rc-plan
    bench/buffers.py target/release/rc-plan --count 100000 --seed 1 [FILE.csv ...]
"""

import argparse
import random
import re
import resource
import subprocess
import tempfile
from pathlib import Path


def short(rng, count):
    """Short lives of sizes that differ by orders of magnitude."""
    return [life(rng.randrange(10 * count), rng.lognormvariate(6, 1), 256 * rng.lognormvariate(5, 2)) for _ in range(count)]


def mixed(rng, count):
    """Lives that differ by orders of magnitude."""
    return [life(rng.randrange(10 * count), rng.lognormvariate(8.5, 1.5), rng.lognormvariate(10, 2)) for _ in range(count)]


def long(rng, count):
    """Lives between any two moments."""
    ends = [sorted(rng.randrange(10 * count) for _ in range(2)) for _ in range(count)]
    return [life(first, end - first, rng.randrange(10**6)) for first, end in ends]


def training(rng, count):
    """What the forward pass keeps is read in the opposite order; beside it is what lives shortly."""
    steps = count // 4
    kept = [life(i, 2 * (steps - i), 256 * rng.choice([16, 64, 256, 1000])) for i in range(steps)]
    times = [time for i in range(steps) for time in (i, 2 * steps - i, 2 * steps - i)]
    return kept + [life(time, rng.randrange(3), 256 * rng.randrange(3000)) for time in times]


def layers(rng, count):
    """One layer after the other, nearly alike."""
    sizes = [4096, 8192, 65536, 1 << 20, 3 << 18, 12345 * 16]
    return [life(i // 25 * 30 + rng.randrange(25), rng.randrange(12), rng.choice(sizes)) for i in range(count)]


def powers(rng, count):
    """Sizes that are powers of two, thousands alive at once."""
    return [life(rng.randrange(count // 20), rng.randrange(count // 50), 1 << rng.randrange(8, 22)) for _ in range(count)]


def uniform(rng, count):
    """About a hundred alive at once, of any size up to a million."""
    return [life(rng.randrange(count), rng.randrange(200), rng.randrange(10**6)) for _ in range(count)]


def life(first, length, size):
    return first, first + 1 + int(length), 1 + int(size)


SHAPES = [short, mixed, long, training, layers, powers, uniform]


def plan(tool, path):
    """What rc-plan says, and the seconds of CPU time that it takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    text = subprocess.run([tool, path], check=True, capture_output=True, text=True).stdout
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    ratio = re.search(r"([\d.]+) of the lower bound", text)
    return float(ratio[1]) if ratio else 1.0, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", help="rc-plan, of a release build")
    parser.add_argument("files", nargs="*", help="instances to plan besides")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    show = lambda name, path: print("{:24} {:8.5f} {:7.2f} s".format(name, *plan(options.tool, path)), flush=True)
    for path in options.files:
        show(Path(path).name, path)
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            path = Path(folder) / "instance.csv"
            lives = shape(random.Random(options.seed), options.count)
            rows = (f"{i},{first},{end},{size}\n" for i, (first, end, size) in enumerate(lives))
            path.write_text("id,lower,upper,size\n" + "".join(rows))
            show(shape.__name__, path)


if __name__ == "__main__":
    main()
