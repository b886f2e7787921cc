"""Random workloads of families that people run and no target names, beside PyTorch eager and Inductor: what is slow, refused or wrong there?

    families.py SEED [--device cuda|cpu] [--only TEXT] [--backends eager,inductor,rc] [--grad | --no-grad] [--json FILE] [--seconds LIMIT]

Each family is a function that draws its sizes; a seed draws every family once. A row has microseconds a call for each backend (median of five
batches; on CUDA of calls captured in a CUDA graph, so the GPU's time alone), the ratio rc / best peer, and rc's and the peers' distance from float64.
"""

import argparse
import functools
import gc
import json
import logging
import random
import statistics
import time
import warnings

import torch
import torch.nn.functional as F

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

FORWARD, GRADIENT = [], []


def family(draw):
    FORWARD.append(draw)
    return draw


def gradient(draw):
    GRADIENT.append(draw)
    return draw


class Draw:
    """What a family draws from: sizes, and tensors of the machine's usual float. A CPU has a sixteenth of the rows, in f32."""

    def __init__(self, seed, device):
        self.random, self.device, self.small = random.Random(seed), device, device == "cpu"
        self.float = torch.float32 if self.small else torch.bfloat16

    def pick(self, *choices):
        return self.random.choice(choices)

    def rows(self, *choices):
        return max(1, self.pick(*choices) // (16 if self.small else 1))

    def t(self, *shape, dtype=None, scale=1.0):
        return (torch.randn(*shape, device=self.device) * scale).to(dtype or self.float)

    def ids(self, high, *shape):
        return torch.randint(0, high, shape, device=self.device)

    def images(self, b, c, hw, last=None):
        x = self.t(b, c, hw, hw)
        return x.to(memory_format=torch.channels_last) if (self.pick(True, False) if last is None else last) else x


# Attention that is not one call of a known form.


@family
def window_attention(d):
    b, h, n = d.rows(256, 1024), d.pick(3, 6, 12), d.pick(49, 64, 144)
    bias, mask = d.t(1, h, n, n), d.t(b // 16 or 1, 1, n, n)
    f = lambda q, k, v, bias, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=bias + mask.repeat_interleave(q.shape[0] // mask.shape[0], 0))
    return f, [d.t(b, h, n, 32) for _ in range(3)] + [bias, mask]


@family
def alibi(d):
    b, h, n, e = d.rows(16, 32), d.pick(8, 16), d.pick(333, 512, 1024), d.pick(64, 128)

    def f(q, k, v, slope):
        at = torch.arange(n, device=q.device)
        bias = -(at[:, None] - at[None]).abs() * slope[:, None, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.where(at[:, None] >= at[None], bias, float("-inf")).to(q.dtype))

    return f, [d.t(b, h, n, e) for _ in range(3)] + [torch.rand(h, device=d.device)]


@family
def capped_attention(d):
    b, h, n, e = d.rows(16, 32), 8, d.pick(200, 512, 1024), d.pick(64, 128)

    def f(q, k, v):
        s = torch.tanh(q @ k.mT * (e**-0.5 / 50)) * 50
        return s.masked_fill(torch.ones(n, n, device=q.device, dtype=torch.bool).triu(1), float("-inf")).float().softmax(-1).to(q.dtype) @ v

    return f, [d.t(b, h, n, e) for _ in range(3)]


@family
def sliding_window(d):
    b, h, n, w = d.rows(16, 32), 8, d.pick(1000, 2048) // (4 if d.small else 1), d.pick(64, 256)

    def f(q, k, v):
        at = torch.arange(n, device=q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=(at[:, None] >= at[None]) & (at[:, None] - at[None] < w))

    return f, [d.t(b, h, n, 64) for _ in range(3)]


@family
def packed_sequences(d):
    n, h, e = d.pick(2048, 4096) // (8 if d.small else 1), d.pick(8, 16), d.pick(64, 128)

    def f(q, k, v, document):
        at = torch.arange(n, device=q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=(document[:, None] == document[None]) & (at[:, None] >= at[None]))

    return f, [d.t(1, h, n, e) for _ in range(3)] + [torch.sort(d.ids(9, n)).values]


@family
def latent_attention(d):
    b, h, n = d.rows(16, 32), d.pick(8, 16), d.pick(512, 1024)
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [d.t(b, h, n, 192), d.t(b, h, n, 192), d.t(b, h, n, 128)]


@family
def linear_attention(d):
    b, h, n, e = d.rows(16, 64), 12, d.pick(1000, 4096) // (4 if d.small else 1), d.pick(32, 64)
    f = lambda q, k, v: torch.einsum("bhnd,bhde->bhne", F.elu(q) + 1, torch.einsum("bhnd,bhne->bhde", k.softmax(-2), v))
    return f, [d.t(b, h, n, e) for _ in range(3)]


@family
def norms_and_rope(d):
    b, h, n, e = d.rows(16, 32), d.pick(12, 32), d.pick(512, 1000), d.pick(64, 128)

    def turned(x, c, s):
        a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    def f(qkv, w, c, s):
        q, k, v = qkv.view(b, n, 3, h, e).permute(2, 0, 3, 1, 4)
        q, k = (turned(F.rms_norm(x, (e,), w), c, s) for x in (q, k))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, h * e)

    return f, [d.t(b, n, 3 * h * e), d.t(e), d.t(n, e // 2), d.t(n, e // 2)]


@family
def complex_rope(d):
    b, h, n, e = d.rows(16, 64), d.pick(12, 32), d.pick(512, 1000), d.pick(64, 128)

    def f(x, angles):
        c = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(c * torch.polar(torch.ones_like(angles), angles)).flatten(3).type_as(x)

    return f, [d.t(b, h, n, e), d.t(n, e // 2, dtype=torch.float32)]


# Products.


@family
def experts(d):
    t, c, n, m, top = d.rows(1024, 4096), d.pick(512, 1024), d.pick(8, 16), d.pick(1024, 1792), 2

    def f(x, router, up, down):
        weight, chosen = (x @ router).float().softmax(-1).topk(top, -1)
        every = torch.zeros(t, n, device=x.device, dtype=x.dtype).scatter(1, chosen, weight.to(x.dtype))
        return torch.einsum("etc,te->tc", F.silu(torch.einsum("tc,ecm->etm", x, up)) @ down, every)

    return f, [d.t(t, c), d.t(c, n), d.t(n, c, m, scale=0.03), d.t(n, m, c, scale=0.03)]


@family
def geglu(d):
    m, k, n = d.rows(1024, 4096), d.pick(320, 640, 1280), d.pick(2560, 5120)

    def f(x, w, b, down):
        a, g = F.linear(x, w, b).chunk(2, -1)
        return F.linear(a * F.gelu(g), down)

    return f, [d.t(m, k), d.t(2 * n, k, scale=0.03), d.t(2 * n), d.t(k, n, scale=0.03)]


@family
def tall_product(d):
    m, k, n = d.pick(65536, 200000) // (16 if d.small else 1), d.pick(16, 48, 64), d.pick(24, 64, 96)
    return lambda x, w, b: F.leaky_relu(F.linear(x, w, b), 0.1), [d.t(m, k), d.t(n, k), d.t(n)]


@family
def deep_product(d):
    m, n, k = d.pick(32, 64, 128), d.pick(64, 100, 256), d.pick(40000, 100352) // (8 if d.small else 1)
    return lambda a, b: a.t() @ b, [d.t(k, m), d.t(k, n)]


@family
def broadcast_product(d):
    b, h, m, k = d.rows(16, 32), d.pick(8, 12), d.pick(100, 256), d.pick(64, 96)
    return lambda a, b: torch.matmul(a[:, None], b), [d.t(b, m, k), d.t(h, k, d.pick(64, 128))]


@family
def einsum_middle(d):
    b, n, g, c, e = d.rows(16, 64), d.pick(196, 256), d.pick(4, 8), d.pick(48, 64), d.pick(64, 80)
    return lambda x, w: torch.einsum("bngc,gce->bnge", x, w), [d.t(b, n, g, c), d.t(g, c, e)]


@family
def half_linear(d):
    m, k, n = d.rows(1000, 4096), d.pick(512, 768), d.pick(768, 2048)
    dtype = torch.float32 if d.small else torch.float16
    return lambda x, w, b: F.hardswish(F.linear(x, w, b)), [d.t(m, k, dtype=dtype), d.t(n, k, dtype=dtype, scale=0.05), d.t(n, dtype=dtype)]


@family
def four_bit_weights(d):
    m, k, n = d.pick(1, 8, 64), d.pick(2048, 4096), d.pick(2048, 4096)

    def f(x, w, scale):
        w = torch.stack([w & 15, w >> 4], -1).flatten(1).to(x.dtype) - 8
        return F.linear(x, (w.view(n, -1, 64) * scale[..., None]).view(n, k))

    return f, [d.t(m, k), torch.randint(0, 255, (n, k // 2), device=d.device, dtype=torch.uint8), d.t(n, k // 64, scale=0.01)]


@family
def low_rank(d):
    m, k, r = d.rows(2048, 8192), d.pick(768, 2048), d.pick(8, 16, 64)
    return lambda x, w, a, b: F.linear(x, w) + F.linear(F.linear(x, a), b) * 2, [d.t(m, k), d.t(k, k, scale=0.03), d.t(r, k, scale=0.03), d.t(k, r)]


@family
def lstm_steps(d):
    b, c = d.pick(16, 64), d.pick(256, 512)

    def f(x, w, u, h, s):
        for i in range(4):
            i, o, g, m = (F.linear(x[i], w) + F.linear(h, u)).chunk(4, -1)
            s = s * torch.sigmoid(o) + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(m) * torch.tanh(s)
        return h

    return f, [d.t(4, b, c), d.t(4 * c, c, scale=0.05), d.t(4 * c, c, scale=0.05), d.t(b, c), d.t(b, c)]


@family
def distances(d):
    b, m, n, k = d.rows(16, 32), d.pick(300, 1024), d.pick(100, 512), d.pick(3, 64)
    return lambda x, y: torch.cdist(x, y), [d.t(b, m, k, dtype=torch.float32), d.t(b, n, k, dtype=torch.float32)]


@family
def cosine(d):
    m, k = d.rows(4096, 16384), d.pick(128, 768)
    return lambda x, y: F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).t(), [d.t(m, k), d.t(d.pick(100, 1000), k)]


# Images.


def convolution(d, c, n, k, scale=1.0, groups=1):
    return d.t(n, c // groups, k, k, scale=scale * (c * k * k / groups) ** -0.5)


@family
def convnext_block(d):
    b, c, hw = d.rows(16, 32), d.pick(96, 192, 384), d.pick(14, 28, 56)

    def f(x, w, g, up, down, scale):
        y = F.layer_norm(F.conv2d(x, w, padding=3, groups=c).permute(0, 2, 3, 1), (c,), g, g)
        return x + (F.linear(F.gelu(F.linear(y, up)), down) * scale).permute(0, 3, 1, 2)

    return f, [d.images(b, c, hw), convolution(d, c, c, 7, groups=c), d.t(c), d.t(4 * c, c, scale=0.05), d.t(c, 4 * c, scale=0.05), d.t(c)]


@family
def mobile_block(d):
    b, c, hw, k = d.rows(16, 64), d.pick(24, 40, 112), d.pick(14, 28, 56), d.pick(3, 5)
    e = 4 * c

    def f(x, up, deep, squeeze, excite, down, bn):
        norm = lambda y, n: F.batch_norm(y, bn[0, :n], bn[1, :n].abs() + 0.5, bn[2, :n], bn[3, :n])
        y = F.silu(norm(F.conv2d(x, up), e))
        y = F.silu(norm(F.conv2d(y, deep, padding=k // 2, groups=e), e))
        y = y * torch.sigmoid(F.conv2d(F.silu(F.conv2d(y.mean((2, 3), keepdim=True), squeeze)), excite))
        return x + norm(F.conv2d(y, down), c)

    return f, [d.images(b, c, hw), convolution(d, c, e, 1), convolution(d, e, e, k, groups=e), convolution(d, e, c // 4, 1), convolution(d, c // 4, e, 1), convolution(d, e, c, 1), d.t(4, e)]


@family
def up_block(d):
    b, c, hw = d.rows(8, 16), d.pick(64, 128, 320), d.pick(16, 32, 64)
    f = lambda x, s, w, g: F.conv2d(F.silu(F.group_norm(torch.cat([F.interpolate(x, scale_factor=2.0), s], 1), 32, g, g)), w, padding=1)
    return f, [d.images(b, c, hw), d.images(b, c, 2 * hw), convolution(d, 2 * c, c, 3), d.t(2 * c)]


@family
def stem(d):
    b, n, k = d.rows(16, 64), d.pick(32, 64), d.pick(3, 7)
    return lambda x, w, b: F.relu(F.conv2d(x, w, b, stride=2, padding=k // 2)), [d.images(b, 3, d.pick(224, 299)), convolution(d, 3, n, k), d.t(n)]


@family
def patches(d):
    b, n, p = d.rows(16, 64), d.pick(384, 768), d.pick(14, 16, 32)
    return lambda x, w, b: F.conv2d(x, w, b, stride=p).flatten(2).transpose(1, 2), [d.images(b, 3, 224, False), convolution(d, 3, n, p), d.t(n)]


@family
def planes_convolution(d):
    b, c, hw, n = d.rows(8, 32), d.pick(33, 64, 128), d.pick(28, 47, 64), d.pick(64, 130)
    k = d.pick((1, 7), (3, 3), (7, 1))
    return lambda x, w: F.conv2d(x, w, padding=(k[0] // 2, k[1] // 2)), [d.images(b, c, hw, False), d.t(n, c, *k, scale=(c * 7) ** -0.5)]


@family
def causal_conv1d(d):
    b, t, c = d.rows(16, 16), d.pick(1000, 2048), d.pick(768, 1536)
    return lambda x, w, b: F.silu(F.conv1d(x.transpose(1, 2), w, b, padding=3, groups=c)[..., :t]).transpose(1, 2), [d.t(b, t, c), d.t(c, 1, 4), d.t(c)]


@family
def shuffled(d):
    b, c, hw = d.rows(8, 16), d.pick(32, 64), d.pick(48, 100)
    return lambda x, w: F.pixel_shuffle(F.conv2d(x, w, padding=1), 2), [d.images(b, c, hw), convolution(d, c, 4 * c, 3)]


@family
def sampled(d):
    b, c, hw = d.rows(8, 32), d.pick(32, 64), d.pick(56, 100)
    return lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), [d.images(b, c, hw), d.t(b, hw, hw, 2)]


@family
def avg_pool(d):
    b, c, hw, k = d.rows(32, 64), d.pick(64, 192), d.pick(28, 56), d.pick(2, 3, 7)
    s = d.pick(1, 2)
    return lambda x: F.avg_pool2d(x, k, s, k // 2), [d.images(b, c, hw)]


@family
def adaptive_max(d):
    b, c, hw = d.rows(32, 64), d.pick(64, 192), d.pick(28, 56)
    return lambda x: F.adaptive_max_pool2d(x, (5, 7)), [d.images(b, c, hw)]


@family
def unfolded(d):
    b, c, hw, k = d.rows(16, 32), d.pick(16, 64), d.pick(32, 56), d.pick(3, 5)
    return lambda x: F.unfold(x, k, padding=k // 2).sum(1), [d.images(b, c, hw)]


@family
def instance(d):
    b, c, hw = d.rows(16, 32), d.pick(32, 64), d.pick(56, 112)
    return lambda x, w: F.leaky_relu(F.instance_norm(x, weight=w, bias=w), 0.2), [d.images(b, c, hw), d.t(c)]


@family
def reflected(d):
    b, c, hw = d.rows(16, 32), d.pick(32, 64), d.pick(56, 111)
    return lambda x, w: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), w), [d.images(b, c, hw), convolution(d, c, c, 3)]


@family
def volume(d):
    b, c, t, n = d.rows(2, 4), d.pick(16, 32), d.pick(8, 16), d.pick(32, 48)
    return lambda x, w: F.max_pool3d(F.relu(F.conv3d(x, w, padding=1)), 2), [d.t(b, c, t, 48, 48), d.t(n, c, 3, 3, 3, scale=0.05)]


# Rows, columns, planes.


@family
def channel_softmax(d):
    b, c, hw = d.rows(16, 32), d.pick(21, 150), d.pick(56, 128)
    return lambda x: x.float().log_softmax(1), [d.images(b, c, hw)]


@family
def masked_softmax(d):
    b, h, n = d.rows(16, 32), 12, d.pick(200, 512)
    return lambda x, m: x.masked_fill(~m, -1e4).softmax(-1) * m, [d.t(b, h, n, n), torch.rand(b, 1, n, n, device=d.device) > 0.2]


@family
def losses(d):
    m, n = d.rows(4096, 8192), d.pick(1000, 32000) // (8 if d.small else 1)
    return lambda x, t: F.cross_entropy(x.float(), t, ignore_index=3, label_smoothing=0.1), [d.t(m, n), d.ids(n, m)]


@family
def distillation(d):
    m, n = d.rows(4096, 8192), d.pick(1000, 8192)
    return lambda x, y: F.kl_div(x.float().log_softmax(-1), y.float().log_softmax(-1), log_target=True, reduction="batchmean"), [d.t(m, n), d.t(m, n)]


@family
def binary_loss(d):
    m, n = d.rows(8192, 16384), d.pick(80, 1000)
    return lambda x, y: F.binary_cross_entropy_with_logits(x.float(), y.float(), reduction="mean"), [d.t(m, n), d.t(m, n).sigmoid()]


@family
def contrastive(d):
    m, k = d.rows(4096, 8192), d.pick(256, 512)

    def f(x, y):
        s = F.normalize(x.float(), dim=-1) @ F.normalize(y.float(), dim=-1).t() * 20
        t = torch.arange(m, device=x.device)
        return F.cross_entropy(s, t) + F.cross_entropy(s.t(), t)

    return f, [d.t(m, k), d.t(m, k)]


@family
def reductions(d):
    s = (d.rows(32, 64), d.pick(12, 33), d.pick(64, 196), d.pick(64, 77))
    dims = d.pick((1,), (0, 2), (1, 3), (2,), (0, 1, 2))
    return lambda x: (x.float().mean(dims), x.float().std(dims), x.amax(dims)), [d.t(*s)]


@family
def maxima(d):
    s = (d.rows(64, 128), d.pick(100, 1000), d.pick(64, 300))
    dim = d.pick(0, 1, 2)
    return lambda x: x.max(dim), [d.t(*s)]


@family
def scans(d):
    s = (d.rows(16, 64), d.pick(500, 2048), d.pick(64, 128))
    f = d.pick(lambda x: x.float().cumsum(1), lambda x: x.float().logcumsumexp(1), lambda x: x.float().cummax(1), lambda x: (x.float() * 0.01 + 1).cumprod(1))
    return f, [d.t(*s)]


@family
def recurrence(d):
    b, t, c = d.rows(16, 64), d.pick(64, 128), d.pick(256, 512)

    def f(x, a):
        gate = torch.sigmoid(a).log().cumsum(1)
        return torch.exp(gate) * (x * torch.exp(-gate)).cumsum(1)

    return f, [d.t(b, t, c, dtype=torch.float32), d.t(b, t, c, dtype=torch.float32) + 4]


@family
def sorting(d):
    m, n = d.rows(256, 1024), d.pick(100, 1500)
    return lambda x: (x.argsort(-1, descending=True), x.median(-1).values), [d.t(m, n, dtype=torch.float32)]


@family
def top_rows(d):
    b, n, c, k = d.rows(16, 64), d.pick(196, 1000), d.pick(64, 256), d.pick(10, 50)
    return lambda s, x: torch.take_along_dim(x, s.topk(k, -1).indices[..., None], 1), [d.t(b, n, dtype=torch.float32), d.t(b, n, c)]


@family
def buckets(d):
    m = d.rows(1 << 20, 1 << 22)
    return lambda x, edges: torch.bucketize(x, edges), [d.t(m, dtype=torch.float32), torch.linspace(-3, 3, d.pick(100, 1000), device=d.device)]


@family
def counts(d):
    m, n = d.rows(1 << 18, 1 << 20), d.pick(100, 5000)
    return lambda i: torch.zeros(n, device=i.device, dtype=torch.int64).scatter_add_(0, i, torch.ones_like(i)), [d.ids(n, m)]


@family
def scatter_maxima(d):
    m, n, c = d.rows(65536, 200000), d.pick(1000, 10000), d.pick(32, 64)
    f = lambda x, i: torch.zeros(n, c, device=x.device).scatter_reduce(0, i[:, None].expand(-1, c), x, "amax", include_self=False)
    return f, [d.t(m, c, dtype=torch.float32), d.ids(n, m)]


@family
def message_passing(d):
    n, e, c = d.rows(16384, 65536), d.rows(131072, 262144), d.pick(32, 64, 100)
    f = lambda x, s, t, w: F.relu(torch.zeros_like(x).index_add(0, t, x[s]) @ w)
    return f, [d.t(n, c, dtype=torch.float32), d.ids(n, e), d.ids(n, e), d.t(c, c, dtype=torch.float32)]


@family
def bags(d):
    v, c, b, n = d.pick(10000, 100000), d.pick(64, 128), d.rows(4096, 16384), d.pick(8, 20)
    return lambda w, i: F.embedding(i, w).mean(1), [d.t(v, c), d.ids(v, b, n)]


@family
def interactions(d):
    b, n, c = d.rows(4096, 8192), d.pick(13, 27), d.pick(16, 64)

    def f(x):
        z = x @ x.mT
        i, j = torch.tril_indices(n, n, -1, device=x.device)
        return z[:, i, j]

    return f, [d.t(b, n, c)]


@family
def moved(d):
    s = [d.rows(64, 128), d.pick(50, 128), d.pick(64, 100), d.pick(12, 32)]
    f = d.pick(
        lambda x: x.flip(2).contiguous(),
        lambda x: x.repeat_interleave(2, 1),
        lambda x: x[:, ::2, 1:].transpose(1, 3).contiguous(),
        lambda x: torch.stack([x, x * 2], 2).flatten(1, 2),
        lambda x: x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2).contiguous(),
        lambda x: x.tile(1, 1, 2, 2),
    )
    return f, [d.t(*s)]


@family
def mixed_types(d):
    m, n = d.rows(8192, 16384), d.pick(1000, 1024, 3333)
    return lambda x, y, i, k: torch.where(k, x * y + i, y.half().to(x.dtype).clamp(-1, 1)), [d.t(m, n), d.t(n, dtype=torch.float32), torch.randint(-9, 9, (m, n), device=d.device, dtype=torch.int32), torch.rand(m, n, device=d.device) > 0.5]


@family
def transposed_operands(d):
    m, n = d.rows(8192, 16384), d.pick(1000, 2048)
    return lambda x, y: F.softplus(x + y.t()) * torch.sin(x), [d.t(m, n), d.t(n, m)]


@family
def special(d):
    m, n = d.rows(8192, 16384), d.pick(512, 1000)
    f = d.pick(lambda x: torch.erfinv(x.tanh()) + torch.lgamma(x.abs() + 1), lambda x: torch.atan2(x, x.cos()), lambda x: torch.pow(x.abs(), 1.7) + torch.expm1(x), lambda x: F.mish(x) + F.selu(x) * F.hardsigmoid(x), lambda x: x.remainder(0.7).log1p())
    return f, [d.t(m, n, dtype=torch.float32)]


@family
def integers(d):
    m, n = d.rows(8192, 16384), d.pick(512, 1000)
    return lambda a, b: ((a // (b.abs() + 1)) ^ (a % 7)) + (b << 2), [torch.randint(-(2**20), 2**20, (m, n), device=d.device) for _ in range(2)]


@family
def timesteps(d):
    b, c = d.rows(16384, 65536), d.pick(128, 320)

    def f(t):
        w = torch.exp(torch.arange(c // 2, device=t.device) * (-9.2 / (c // 2)))
        a = t[:, None].float() * w
        return torch.cat([a.cos(), a.sin()], -1).to(d.float)

    return f, [d.ids(1000, b)]


@family
def clipped_steps(d):
    n = d.pick(20, 100)
    shapes = [d.pick((768, 768), (768,), (1024, 512), (17, 33)) for _ in range(n)]

    def f(*t):
        g = t[n : 2 * n]
        scale = (1.0 / (torch.stack([x.norm() for x in g]).norm() + 1e-6)).clamp(max=1)
        return [p - 0.01 * (m * 0.9 + x * scale) for p, x, m in zip(t[:n], g, t[2 * n :])]

    return f, [d.t(*s, dtype=torch.float32) for _ in range(3) for s in shapes]


@family
def lion(d):
    n = d.pick(20, 100)
    shapes = [d.pick((768, 768), (768,), (1024, 512), (17, 33)) for _ in range(n)]

    def f(*t):
        p, g, m = t[:n], t[n : 2 * n], t[2 * n :]
        return [a - 1e-4 * (torch.sign(c * 0.9 + b * 0.1) + 0.1 * a) for a, b, c in zip(p, g, m)] + [c * 0.99 + b * 0.01 for b, c in zip(g, m)]

    return f, [d.t(*s, dtype=torch.float32) for _ in range(3) for s in shapes]


# Gradients.


@gradient
def window_bias(d):
    b, h, n = d.rows(256, 1024), d.pick(3, 6), d.pick(49, 64)
    return lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, attn_mask=bias), [d.t(b, h, n, 32) for _ in range(3)] + [d.t(1, h, n, n)]


@gradient
def cross_attention(d):
    b, h, m, n, e = d.rows(16, 32), 8, d.pick(256, 1024), d.pick(77, 200), d.pick(40, 64, 80)
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [d.t(b, h, m, e), d.t(b, h, n, e), d.t(b, h, n, e)]


@gradient
def grouped_attention(d):
    b, h, n, e = d.rows(16, 32), d.pick(2, 4), d.pick(512, 1000), d.pick(64, 128)
    f = lambda q, k, v: F.scaled_dot_product_attention(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1), is_causal=True)
    return f, [d.t(b, 4 * h, n, e), d.t(b, h, n, e), d.t(b, h, n, e)]


@gradient
def gated_mlp(d):
    m, k, n = d.rows(2048, 8192), d.pick(512, 768), d.pick(1536, 2048)
    return lambda x, g, u, w: F.linear(F.silu(F.linear(x, g)) * F.linear(x, u), w), [d.t(m, k), d.t(n, k, scale=0.03), d.t(n, k, scale=0.03), d.t(k, n, scale=0.03)]


@gradient
def residual_norm(d):
    m, n = d.rows(4096, 16384), d.pick(768, 1000, 2048)
    return lambda x, r, w, b: F.layer_norm(x + r, (n,), w, b), [d.t(m, n), d.t(m, n), d.t(n), d.t(n)]


@gradient
def depthwise(d):
    b, c, hw, k, s = d.rows(16, 64), d.pick(96, 240), d.pick(14, 28, 56), d.pick(3, 5, 7), d.pick(1, 1, 2)
    return lambda x, w: F.conv2d(x, w, stride=s, padding=k // 2, groups=c), [d.images(b, c, hw), convolution(d, c, c, k, groups=c)]


@gradient
def groups(d):
    b, c, hw, g = d.rows(16, 32), d.pick(128, 256), d.pick(14, 28), d.pick(4, 32)
    return lambda x, w: F.relu(F.conv2d(x, w, padding=1, groups=g)), [d.images(b, c, hw), convolution(d, c, c, 3, groups=g)]


@gradient
def speech(d):
    b, c, t, k, s = d.rows(16, 16), d.pick(80, 256), d.pick(1000, 1500), d.pick(3, 5), d.pick(1, 2)
    return lambda x, w, h: F.gelu(F.conv1d(x, w, h, stride=s, padding=k // 2)), [d.t(b, c, t), d.t(256, c, k, scale=0.05), d.t(256)]


@gradient
def generator(d):
    b, c, hw = d.rows(16, 32), d.pick(64, 128), d.pick(16, 32)
    return lambda x, w: F.leaky_relu(F.conv_transpose2d(x, w, stride=2, padding=1), 0.2), [d.images(b, c, hw), d.t(c, c // 2, 4, 4, scale=0.05)]


@gradient
def volumes(d):
    b, c, t = d.rows(2, 4), d.pick(16, 32), d.pick(8, 16)
    return lambda x, w: F.relu(F.conv3d(x, w, padding=1)), [d.t(b, c, t, 48, 48), d.t(32, c, 3, 3, 3, scale=0.05)]


@gradient
def pooled(d):
    b, c, hw = d.rows(32, 64), d.pick(64, 192), d.pick(28, 56)
    f = d.pick(lambda x: F.max_pool2d(x, 2), lambda x: F.avg_pool2d(x, 3, 2, 1), lambda x: F.max_pool2d(x, 3, 1, 1))
    return f, [d.images(b, c, hw)]


@gradient
def resized(d):
    b, c, hw = d.rows(8, 32), d.pick(32, 64), d.pick(28, 56)
    mode = d.pick("bilinear", "nearest")
    return lambda x: F.interpolate(x, scale_factor=2, mode=mode), [d.images(b, c, hw)]


@gradient
def group_norm(d):
    b, c, hw = d.rows(8, 16), d.pick(128, 320), d.pick(32, 64)
    return lambda x, w, h: F.silu(F.group_norm(x, 32, w, h)), [d.images(b, c, hw), d.t(c), d.t(c)]


@gradient
def row_softmax(d):
    m, n = d.rows(4096, 16384), d.pick(512, 1000, 4096)
    return lambda x: x.float().softmax(-1), [d.t(m, n)]


@gradient
def scanned(d):
    m, n = d.rows(512, 4096), d.pick(1000, 4096)
    return lambda x: x.float().cumsum(-1), [d.t(m, n)]


@gradient
def looked_up(d):
    v, c, t = d.pick(1000, 32000), d.pick(128, 512), d.rows(8192, 32768)
    return lambda w, i: F.embedding(i, w, padding_idx=0), [d.t(v, c), d.ids(v, t)]


@gradient
def picked(d):
    b, n, c = d.rows(64, 256), d.pick(196, 512), d.pick(64, 256)
    return lambda x, i: torch.take_along_dim(x, i, 1), [d.t(b, n, c), d.ids(n, b, n // 4, 1).expand(-1, -1, c)]


@gradient
def smooth_loss(d):
    m, n = d.rows(4096, 8192), d.pick(1000, 32000) // (8 if d.small else 1)
    return lambda x, t: F.cross_entropy(x.float(), t, ignore_index=3, label_smoothing=0.1), [d.t(m, n), d.ids(n, m)]


@gradient
def products(d):
    b, m, k, n = d.rows(64, 192), d.pick(49, 196), d.pick(32, 80), d.pick(64, 197)
    return torch.bmm, [d.t(b, m, k), d.t(b, k, n)]


def tensors(value):
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def step(f, args, grad):
    if not grad:
        return f(*args)
    args = [x.detach().requires_grad_() if x.is_floating_point() else x for x in args]
    results = [y for y in tensors(f(*args)) if y.requires_grad]
    return torch.autograd.grad(results, [x for x in args if x.requires_grad], [cotangent(y) for y in results], allow_unused=True)


@functools.cache
def weights(shape, device):
    return torch.randn(shape, device=device, generator=torch.Generator(device).manual_seed(7))


def cotangent(y):
    """The same for every backend, and no constant: of a softmax's sum the gradient is zero."""
    return weights(y.shape, y.device).to(y.dtype)


def captured(f, calls):
    """A CUDA graph of so many calls: what the GPU does, without the host."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        f()
        f()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            f()
    return graph


def batch(f, n, cuda):
    """Microseconds a call of n calls."""
    if not cuda:
        start = time.perf_counter()
        for _ in range(n):
            f()
        return 1e6 * (time.perf_counter() - start) / n
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(n):
        f()
    end.record()
    torch.cuda.synchronize()
    return 1e3 * begin.elapsed_time(end) / n


def microseconds(f, cuda):
    """A call's time, and whether it is the GPU's alone: what cannot be captured is timed with the host."""
    for _ in range(3):
        f()
    plain = batch(f, 3, cuda)
    n, calls, alone = max(3, min(50, int(20e3 / max(plain, 20)))), 1, cuda
    if cuda:
        try:
            calls = max(1, min(10, int(2e3 / plain)))
            f, n = captured(f, calls).replay, max(3, n // calls)
        except Exception:
            torch.cuda.synchronize()
            calls, alone = 1, False
    return round(statistics.median(batch(f, n, cuda) for _ in range(5)) / calls, 1), alone


def distance(got, reference):
    pairs = [(x.double().cpu(), y.cpu()) for x, y in zip(got, reference) if y.is_floating_point()]
    return max((float((x - y).norm() / (y.norm() + 1e-30)) for x, y in pairs), default=0.0)


def measured(draw, seed, device, backends, grad):
    cuda = device == "cuda"
    torch.manual_seed(seed)
    f, args = draw(Draw(f"{seed} {draw.__name__}", device))
    shapes = " ".join("x".join(map(str, a.shape)) for a in args[:3])
    row = {"case": ("bwd_" if grad else "") + draw.__name__, "shapes": shapes, "seed": seed, "device": device}
    with torch.enable_grad() if grad else torch.no_grad():
        try:
            exact = tensors(step(f, [a.double() if a.is_floating_point() else a for a in args], grad))
        except Exception:
            exact = None  # a function that names a type
        for backend in backends:
            try:
                torch._dynamo.reset()
                gc.collect()
                c = f if backend == "eager" else torch.compile(f, backend=backend, dynamic=False, fullgraph=True)
                start = time.time()
                got = [x.clone() for x in tensors(step(c, args, grad))]
                row[backend + "_first_s"] = round(time.time() - start, 2)
                if exact is None and backend == "eager":
                    exact = [x.double() if x.is_floating_point() else x for x in got]
                if exact is not None:
                    row[backend + "_error"] = float(f"{distance(got, exact):.2e}")
                row[backend], alone = microseconds(lambda: step(c, args, grad), cuda)
                if cuda and not alone:
                    row[backend + "_with_host"] = True
            except Exception as error:
                row[backend + "_refused"] = repr(error)[:400]
    peers = [row[k] for k in ("eager", "inductor") if k in row]
    if "rc" in row and peers:
        row["ratio"] = round(row["rc"] / min(peers), 3)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--only", default="")
    parser.add_argument("--backends", default="eager,inductor,rc")
    parser.add_argument("--grad", action=argparse.BooleanOptionalAction)
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    o = parser.parse_args()
    rows, start = [], time.time()
    for draw in ([] if o.grad else FORWARD) + ([] if o.grad is False else GRADIENT):
        grad = draw in GRADIENT
        if o.only not in ("bwd_" if grad else "") + draw.__name__ or time.time() - start > o.seconds:
            continue
        rows.append(measured(draw, o.seed, o.device, o.backends.split(","), grad))
        print(json.dumps(rows[-1]), flush=True)
        if o.json:
            print(json.dumps(rows[-1]), file=open(o.json, "a"))
        weights.cache_clear()
        if o.device == "cuda":
            torch.cuda.empty_cache()
    ratios = sorted((r["ratio"], r["case"]) for r in rows if "ratio" in r)
    if ratios:
        only = [x for x, _ in ratios]
        mean = statistics.geometric_mean(only)
        refused = [r["case"] for r in rows if "rc_refused" in r]
        print(f"{len(only)} ratios rc / best peer: geometric mean {mean:.3f}, at most 1.2: {sum(x <= 1.2 for x in only)}, over 2: {[r for r in ratios if r[0] > 2]}, refused: {refused}")


if __name__ == "__main__":
    main()
