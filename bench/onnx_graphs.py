"""Graphs of the CPU benchmarks for ONNX Runtime, made with `onnx.helper` from the same inputs and weights."""
import math

import numpy as np

try:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    onnx, missing = None, str(error)
else:
    missing = None

OPSET = 23
TYPES = {"float32": 1, "int64": 7}


def version():
    """What to print of ONNX Runtime: its version, or that it is absent and what to do."""
    if onnx is None:
        return f"no ONNX Runtime here ({missing}); bench/run.sh installs onnx and onnxruntime"
    return f"ONNX Runtime {onnxruntime.__version__}"


class Graph:
    """Nodes in order; values are named by numbers."""

    def __init__(self):
        self.nodes, self.weights, self.inputs, self.count = [], [], [], 0

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def op(self, op, *inputs, outputs=1, **attrs):
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attrs))
        return names[0] if outputs == 1 else names

    def weight(self, array):
        name = self.name()
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def input(self, array):
        name = self.name()
        self.inputs.append((name, array))
        return name

    def session(self, result, shape, threads):
        """A function that runs the graph and gives its result, in memory bound beforehand."""
        infos = [helper.make_tensor_value_info(n, TYPES[str(a.dtype)], a.shape) for n, a in self.inputs]
        out = helper.make_tensor_value_info(result, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "bench", infos, [out], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        binding, values = session.io_binding(), []
        for name, array in self.inputs:
            values.append(onnxruntime.OrtValue.ortvalue_from_numpy(array))
            binding.bind_ortvalue_input(name, values[-1])
        values.append(onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), np.float32, "cpu"))
        binding.bind_ortvalue_output(result, values[-1])

        def run():
            session.run_with_iobinding(binding)
            return values[-1]

        return run


def product(a, b, threads):
    g = Graph()
    return g.session(g.op("MatMul", g.input(a), g.input(b)), (a.shape[0], b.shape[1]), threads)


def chain(x, y, threads):
    g = Graph()
    s = g.op("Add", g.op("Mul", g.input(x), g.input(y)), g.weight(np.float32(1.5).reshape(1)))
    return g.session(g.op("Softmax", g.op("Gelu", s, approximate="tanh"), axis=-1), x.shape, threads)


def attention(q, k, v, threads):
    g = Graph()
    return g.session(g.op("Attention", g.input(q), g.input(k), g.input(v), is_causal=1), q.shape, threads)


def gpt2(model, tokens, threads):
    """GPT-2 from the weights of `transformers`' model; products by weights that never change, which ONNX Runtime packs once."""
    g, config = Graph(), model.config
    weights = {name: w.detach().numpy() for name, w in model.state_dict().items()}
    batch, length = tokens.shape
    heads, size = config.n_head, config.n_embd // config.n_head

    def norm(x, name):
        scale, bias = (g.weight(weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return g.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=config.layer_norm_epsilon)

    def linear(x, name):
        y = g.op("MatMul", x, g.weight(weights[f"{name}.weight"]))
        return g.op("Add", y, g.weight(weights[f"{name}.bias"]))

    def split_heads(x):
        shape = g.weight(np.array([batch, length, heads, size]))
        return g.op("Transpose", g.op("Reshape", x, shape), perm=[0, 2, 1, 3])

    table = g.weight(weights["transformer.wte.weight"])
    x = g.op("Gather", table, g.input(tokens))
    x = g.op("Add", x, g.weight(weights["transformer.wpe.weight"][None, :length]))
    for layer in range(config.n_layer):
        at = f"transformer.h.{layer}"
        qkv = linear(norm(x, f"{at}.ln_1"), f"{at}.attn.c_attn")
        q, k, v = map(split_heads, g.op("Split", qkv, outputs=3, axis=-1, num_outputs=3))
        y = g.op("Attention", q, k, v, is_causal=1, scale=1 / math.sqrt(size))
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.weight(np.array([batch, length, heads * size])))
        x = g.op("Add", x, linear(y, f"{at}.attn.c_proj"))
        y = g.op("Gelu", linear(norm(x, f"{at}.ln_2"), f"{at}.mlp.c_fc"), approximate="tanh")
        x = g.op("Add", x, linear(y, f"{at}.mlp.c_proj"))
    head = g.weight(weights["transformer.wte.weight"].T)
    logits = g.op("MatMul", norm(x, "transformer.ln_f"), head)
    return g.session(logits, (batch, length, config.vocab_size), threads)
