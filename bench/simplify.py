#!/usr/bin/env python3
"""`canonicalize` and `cse` on operations with known duplicates, folds and dead ends: rc-opt on `core`, mlir-opt on its twin in `arith`.

    bench/simplify.py target/release/rc-opt [--operations 200000]

User and system time of whole runs, taken in turns, the least of several; and how many operations are left, of those that have to be.
"""

import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile

# Name in core, in arith; those that commute.
BINARY = [("add", "addi", True), ("mul", "muli", True), ("sub", "subi", False), ("xor", "xori", True), ("and", "andi", True)]


class Module:
    """The same functions twice, in core and in arith."""

    def __init__(self, operations, seed):
        self.random = random.Random(seed)
        self.core, self.arith = [], []
        self.operations = self.needed = 0
        number = 0
        while self.operations < operations:
            self.function(number)
            number += 1

    def both(self, core, arith=None):
        self.core.append(core)
        self.arith.append(arith or core)

    def binary(self, name, op, a, b):
        core, arith, _ = op
        self.both(f"  %{name} = core.{core} %{a}, %{b} : i32", f"  %{name} = arith.{arith} %{a}, %{b} : i32")
        self.operations += 1

    def constant(self, name, value):
        self.both(f"  %{name} = core.constant {{value = {value} : i32}} : i32", f"  %{name} = arith.constant {value} : i32")
        self.operations += 1

    def function(self, number):
        rng = self.random
        self.both(f"func.func @f{number}(%x: i32, %y: i32) -> i32 {{")
        self.constant("zero", 0)
        self.constant("one", 1)
        values, last = ["x", "y"], "y"
        for i in range(100):
            # One that stays: it uses the last, so that nothing of the chain is dead, and no two are equal.
            op, other = rng.choice(BINARY[:2]), rng.choice(values[:-1] or ["x"])
            self.binary(f"v{i}", op, last, other)
            self.needed += 1
            kind = i % 4
            if kind == 0:  # A duplicate, operands swapped, and a use of both that stays.
                self.binary(f"d{i}", op, other, last)
                self.binary(f"w{i}", BINARY[0], f"v{i}", f"d{i}")
                self.needed += 1
                last = f"w{i}"
            elif kind == 1:  # Neutral elements.
                self.binary(f"a{i}", BINARY[0], f"v{i}", "zero")
                self.binary(f"m{i}", BINARY[1], f"a{i}", "one")
                last = f"m{i}"
            elif kind == 2:  # Constants that fold to 0, added.
                self.constant(f"c{i}", i)
                self.constant(f"k{i}", i)
                self.binary(f"s{i}", BINARY[2], f"c{i}", f"k{i}")
                self.binary(f"a{i}", BINARY[0], f"v{i}", f"s{i}")
                last = f"a{i}"
            else:  # Dead ends.
                self.binary(f"u{i}", BINARY[3], f"v{i}", "x")
                self.binary(f"t{i}", BINARY[4], f"u{i}", "y")
                last = f"v{i}"
            values.append(last)
        self.both(f"  func.return %{last}\n}}", f"  func.return %{last} : i32\n}}")


def usage(command):
    child = subprocess.Popen(command)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"error: {' '.join(command)} fails")
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rc_opt")
    parser.add_argument("--mlir-opt", default="/usr/lib/llvm-22/bin/mlir-opt")
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--least", type=float, default=0.0, help="exit with 1 where rc takes more than mlir-opt's time by this")
    options = parser.parse_args()
    module = Module(options.operations, 1)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "core.ir").write_text("\n".join(module.core) + "\n")
        (folder / "arith.mlir").write_text("\n".join(module.arith) + "\n")
        commands = {
            "rc-opt": [options.rc_opt, "--canonicalize", "--cse", f"{folder}/core.ir", "-o", f"{folder}/rc-opt"],
            "mlir-opt": [options.mlir_opt, "--pass-pipeline=builtin.module(func.func(canonicalize,cse))", f"{folder}/arith.mlir", "-o", f"{folder}/mlir-opt"],
        }
        times = {who: [] for who in commands}
        for _ in range(options.runs):
            for who, command in commands.items():
                times[who].append(usage(command))
        print(f"{module.operations} operations, of which {module.needed} have to stay")
        for who in commands:
            left = sum(" = " in line for line in (folder / who).read_text().splitlines())
            print(f"{who:9} {min(times[who]) * 1e3:7.0f} ms of user and system time, {left} operations left")
    ratio = min(times["mlir-opt"]) / min(times["rc-opt"])
    print(f"rc-opt takes {ratio:.1f} times less")
    return 0 if ratio >= options.least else 1


sys.exit(main())
