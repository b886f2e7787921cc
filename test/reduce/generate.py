#!/usr/bin/env python3
"""Writes the failing modules of this folder: random graphs, with what fails in their midst. Each says in its first lines what fails.

    python3 test/reduce/generate.py
"""

import random
from pathlib import Path

FOLDER = Path(__file__).parent
A, T, S, V, H = "tensor<64x48xf32>", "tensor<48x64xf32>", "tensor<64x64xf32>", "tensor<64xf32>", "tensor<64x48xbf16>"
UNARY = ["exp", "tanh", "neg", "abs", "logistic", "sin", "sqrt"]
BINARY = ["add", "mul", "sub", "max", "min"]


class Graph:
    """The lines of a function, and its values by type."""

    def __init__(self, seed, types=(A, T, S, V, H)):
        self.random = random.Random(seed)
        self.lines = []
        self.args = []
        self.values = {}
        self.count = 0
        self.ends = []
        for ty in types:
            for _ in range(3):
                self.args.append((f"%arg{len(self.args)}", ty))
                self.values.setdefault(ty, []).append(self.args[-1][0])

    def arg(self, ty):
        self.args.append((f"%arg{len(self.args)}", ty))
        return self.args[-1][0]

    def op(self, text, *types):
        names = [f"%v{self.count + i}" for i in range(len(types))]
        self.count += len(types)
        self.lines.append(f"{', '.join(names)} = {text} : {', '.join(types)}")
        for name, ty in zip(names, types):
            self.values.setdefault(ty, []).append(name)
        return names[0] if len(names) == 1 else names

    def end(self, name, ty):
        """Returns the value in any case."""
        self.ends.append((name, ty))

    def pick(self, ty):
        """A value of the type, one of the latest more often than not."""
        values = self.values[ty]
        return self.random.choice(values[-6:] if self.random.random() < 0.8 else values)

    def filler(self):
        r, ty = self.random, self.random.choice([A, T, S, V, H])
        kind = r.random()
        if kind < 0.35:
            self.op(f"core.{r.choice(UNARY)} {self.pick(ty)}", ty)
        elif kind < 0.75:
            self.op(f"core.{r.choice(BINARY)} {self.pick(ty)}, {self.pick(ty)}", ty)
        elif ty == A:
            self.op(f"core.transpose {self.pick(T)} {{perm = [1, 0]}}", A)
        elif ty == T:
            self.op(f"core.transpose {self.pick(A)} {{perm = [1, 0]}}", T)
        elif ty == S:
            self.op(f"core.dot {self.pick(A)}, {self.pick(A)} {{lhs_contract = [1], rhs_contract = [1]}}", S)
        elif ty == V:
            self.op(f"core.reduce {self.pick(S)} {{dims = [1], kind = add}}", V)
        else:
            self.op(f"core.convert {self.pick(A)}", H)

    def fill(self, n):
        for _ in range(n):
            self.filler()

    def function(self, name, attributes=""):
        ends = [(self.values[ty][-1], ty) for ty in (A, S, V, H)] + self.ends
        return function(name, self.args, self.lines, ends, attributes)


def function(name, args, lines, ends, attributes="", private=False):
    head = ", ".join(f"{n}: {t}" for n, t in args)
    results = ", ".join(t for _, t in ends)
    word = "private " if private else ""
    attributes = f" attributes {{{attributes}}}" if attributes else ""
    body = "".join(f"  {line}\n" for line in lines)
    return f"func.func {word}@{name}({head}) -> ({results}){attributes} {{\n{body}  func.return {', '.join(n for n, _ in ends)}\n}}\n"


def write(name, test, *parts):
    (FOLDER / f"{name}.ir").write_text(f"// TEST: {test}\n\n" + "\n".join(parts))


def attention_rank():
    g = Graph(1)
    five = "tensor<2x1x4x8x16xf32>"
    g.fill(150)
    q = g.op(f"core.reshape {g.op(f'core.broadcast {g.pick(V)} {{dims = [0]}}', 'tensor<64x16xf32>')}", five)
    e = g.op(f"core.exp {q}", five)
    y = g.op(f"core.attention {e}, {q}, {e} {{causal = true}}", five)
    flat = g.op(f"core.reshape {y}", "tensor<64x16xf32>")
    g.end(g.op(f"core.reduce {flat} {{dims = [1], kind = add}}", V), V)
    g.fill(150)
    write("attention-rank", "fails lower-loops: on tensors of rank", g.function("main"))


def loop_derivative():
    g = Graph(2)
    g.fill(200)
    last = g.op(f"core.while init({g.pick(V)}) args({g.pick(V)}) {{condition = \"below\", body = \"step\"}}", V)
    g.end(g.op(f"core.tanh {last}", V), V)
    g.fill(250)
    below = function("below", [("%x", V), ("%most", V)], [
        f"%s = core.reduce %x {{dims = [0], kind = add}} : tensor<f32>",
        f"%m = core.reduce %most {{dims = [0], kind = max}} : tensor<f32>",
        "%p = core.compare %s, %m {kind = lt} : tensor<i1>"], [("%p", "tensor<i1>")], private=True)
    lines, last = [], "%x"
    for i in range(40):
        lines.append(f"%w{i} = core.{UNARY[i % 5]} {last} : {V}")
        last = f"%w{i}"
    step = function("step", [("%x", V), ("%most", V)], lines, [(last, V)], private=True)
    write("loop-derivative", "fails autodiff{mode=vjp}: the derivative of a loop without a bound", g.function("main"), below, step)


def symbolic_head():
    g = Graph(3)
    ty = "tensor<2x4x8 x d x f32>"
    g.fill(180)
    q, k = g.arg(ty), g.arg(ty)
    for name in UNARY[:5]:
        q, k = g.op(f"core.{name} {k}", ty), g.op(f"core.add {q}, {k}", ty)
    y = g.op(f"core.attention {q}, {k}, {q}", ty)
    rows = g.op(f"core.reduce {y} {{dims = [0, 1, 2, 3], kind = add}}", "tensor<f32>")
    g.end(g.op(f"core.broadcast {rows} {{dims = []}}", V), V)
    g.fill(200)
    write("symbolic-head", "fails lower-loops: with a symbolic head size", g.function("main", "rc.symbols = #rc.symbols<d = [8, 64, 8]>"))


def bits_derivative():
    g = Graph(4)
    g.fill(700)
    i = "tensor<64xi32>"
    bits = g.op(f"core.bitcast {g.pick(V)}", i)
    one = g.op("core.constant {value = dense<1> : tensor<64xi32>}", i)
    last = g.op(f"core.bitcast {g.op(f'core.add {bits}, {one}', i)}", V)
    g.end(g.op(f"core.tanh {last}", V), V)
    g.fill(800)
    write("bits-derivative", "fails canonicalize,cse,autodiff{mode=vjp}: the bits of a number", g.function("main"))


def unbounded_sort():
    g = Graph(5)
    ty, at = "tensor<3 x n x f32>", "tensor<3 x n x i64>"
    g.fill(90)
    x = g.arg(ty)
    for name in UNARY:
        x = g.op(f"core.{name} {x}", ty)
    x, _ = g.op(f"core.sort {x} {{descending = true}}", ty, at)
    g.end(g.op(f"core.broadcast {g.op(f'core.reduce {x} {{dims = [0, 1], kind = max}}', 'tensor<f32>')} {{dims = []}}", V), V)
    g.fill(90)
    symbols = "rc.symbols = #rc.symbols<n = [1, 9223372036854775807, 1]>"
    write("unbounded-sort", "fails fuse,lower-loops,schedule: of rows without a bound", g.function("main", symbols))


def fusion(g, inputs, lines, result, kind):
    args = ", ".join(f"%a{i}: {ty}" for i, (_, ty) in enumerate(inputs))
    body = "".join(f"    {line}\n" for line in lines)
    return g.op(f"core.fusion {', '.join(n for n, _ in inputs)} {{kind = \"{kind}\"}} (({args}) {{\n{body}    core.yield {result[0]}\n  }})", result[1])


def fused_gather():
    """A hundred fusions; one gathers from a table that it computes."""
    g = Graph(6)
    for i in range(100):
        if i == 60:
            where = g.arg("tensor<64xi64>")
            lines = [f"%t = core.exp %a0 : {A}", f"%u = core.mul %t, %a1 : {A}",
                     f"%g = core.gather %u, %a2 {{axis = 0}} : {A}", f"%n = core.neg %g : {A}", f"%z = core.add %n, %a1 : {A}"]
            fusion(g, [(g.pick(A), A), (g.pick(A), A), (where, "tensor<64xi64>")], lines, ("%z", A), "rows")
            continue
        ty = g.random.choice([A, T, S, V])
        lines = [f"%e0 = core.add %a0, %a1 : {ty}"]
        for j in range(1, g.random.randrange(3, 9)):
            lines.append(f"%e{j} = core.{g.random.choice(UNARY)} %e{j - 1} : {ty}")
        fusion(g, [(g.pick(ty), ty), (g.pick(ty), ty)], lines, (f"%e{len(lines) - 1}", ty), "elementwise")
        g.fill(1)
    write("fused-gather", "fails lower-loops: of a table computed in the same kernel", g.function("main"))


def two_far_apart():
    """Nothing fails but that both of two operations are there, far apart."""
    g = Graph(7)
    g.fill(300)
    ints = g.op(f"core.convert {g.pick(V)}", "tensor<64xi64>")
    g.fill(900)
    g.end(g.op(f"core.gather {g.pick(V)}, {ints} {{axis = 0}}", V), V)
    g.fill(700)
    test = "runs rc-opt --canonicalize --cse %s -o %t && grep -q core.gather %t && grep -q 'core.convert.*i64' %t"
    write("two-far-apart", test, g.function("main"))


def transpose_stays():
    g = Graph(8)
    g.fill(400)
    p, q = "tensor<4x64x12xf32>", "tensor<64x4x12xf32>"
    x = g.op(f"core.reshape {g.pick(A)}", p)
    x = g.op(f"core.transpose {g.op(f'core.tanh {x}', p)} {{perm = [1, 0, 2]}}", q)
    w = g.arg("tensor<12x1x12xf32>")
    w = g.op(f"core.reshape {w}", "tensor<12x12xf32>")
    y = g.op(f"core.dot {x}, {w} {{lhs_contract = [2], rhs_contract = [0]}}", q)
    g.end(g.op(f"core.reshape {y}", A), A)
    g.fill(400)
    test = "runs rc-opt --layout --remarks %s 2>&1 | grep -q 'free dimensions would change their order'"
    write("transpose-stays", test, g.function("main"))


def many_functions():
    """Forty functions in a chain of calls; one of them has what fails."""
    parts = []
    for i in range(40):
        g = Graph(100 + i, types=(V,))
        x = g.values[V][0]
        for j in range(12):
            x = g.op(f"core.{g.random.choice(BINARY)} {x}, {g.pick(V)}", V)
        if i == 23:
            x = g.op(f"core.bitcast {g.op(f'core.bitcast {x}', 'tensor<64xi32>')}", V)
        if i > 0:
            x = g.op(f"func.call {x}, {g.pick(V)}, {g.pick(V)} {{callee = @f{i - 1}}}", V)
        parts.append(function(f"f{i}", g.args, g.lines, [(x, V)], private=i < 39))
    write("many-functions", "fails autodiff{function=f39 mode=vjp}: the bits of a number", *parts)


def wrong_schedule():
    """Kernels whose nests carry schedules; one has threads that are no power of two."""
    parts = []
    for i in range(40):
        axes = "i, i" if i == 27 else "_, i"
        schedule = f"schedule = #rc.schedule<kind = pointwise, grid = [i], tile = {{i = 64}}, axes = [{axes}], threads = 1>"
        nest = "iters = [i], kinds = [parallel], extents = [256], out_maps = [[i]], combiner = [none]"
        parts.append(f"""loop.kernel @k{i}(%x: tensor<256xf32>, %y: tensor<256xf32>) -> tensor<256xf32> {{
  %r = loop.nest %x[i], %y[i] {{{nest}, {schedule}}} ((%a: f32, %b: f32) {{
    %c = core.add %a, %b : f32
    %d = core.{UNARY[i % 5]} %c : f32
    loop.yield %d
  }}) : tensor<256xf32>
  loop.return %r
}}
""")
    write("wrong-schedule", "fails lower-kernel: along both dimensions", *parts)


for make in [attention_rank, loop_derivative, symbolic_head, bits_derivative, unbounded_sort, fused_gather, two_far_apart,
             transpose_stays, many_functions, wrong_schedule]:
    make()
