"""Random workloads of many fields, as families.py draws and measures them: sequence models without attention, decoding, graphs and points, physics, finance,
policies, recommenders, image generation, protein folding, speech, time series, losses and optimizers.

    fields.py SEED [the options of families.py]
"""

import torch
import torch.nn.functional as F

import families
from families import family
from further import both

families.FORWARD.clear()
families.GRADIENT.clear()
f32 = torch.float32


# Sequences without attention.


@both
def chunked_decay(d):
    b, n, c, h, e = d.rows(8, 16), d.pick(16, 32), d.pick(64, 128), 8, 64

    def f(x, a, q, k):
        s = a.float().cumsum(-1)
        at = torch.arange(c, device=x.device)
        low = torch.where(at[:, None] >= at, (s[..., :, None] - s[..., None, :]), float("-inf")).exp().to(x.dtype)
        return torch.einsum("bnlhe,bnshe,bnhls,bnshp->bnlhp", q, k, low, x)
    return f, [d.t(b, n, c, h, e), -torch.rand(b, n, h, c, device=d.device) * 0.1, d.t(b, n, c, h, e, scale=0.1), d.t(b, n, c, h, e, scale=0.1)]


@family
def retention(d):
    b, h, n, e = d.rows(16, 32), 8, d.pick(256, 512), d.pick(64, 128)

    def f(q, k, v, g):
        at = torch.arange(n, device=q.device)
        decay = torch.where(at[:, None] >= at, torch.exp(-(at[:, None] - at).abs() * g[:, None, None]), 0.0)
        s = q @ k.mT * decay.to(q.dtype)
        s = s / s.detach().abs().sum(-1, keepdim=True).clamp(1, 5e4)
        y = s @ v
        return F.layer_norm(y, (e,))
    return f, [d.t(b, h, n, e) for _ in range(3)] + [torch.rand(h, device=d.device) * 0.1]


@both
def token_shift(d):
    b, n, c = d.rows(8, 16), d.pick(512, 1024), d.pick(768, 1024)

    def f(x, mk, mr, wk, wr, wv):
        before = F.pad(x, (0, 0, 1, -1))
        k = torch.lerp(before, x, mk)
        r = torch.lerp(before, x, mr)
        return torch.sigmoid(r @ wr) * (torch.relu(k @ wk).square() @ wv)
    return f, [d.t(b, n, c), d.t(c), d.t(c), d.t(c, 2 * c, scale=0.03), d.t(c, c, scale=0.03), d.t(2 * c, c, scale=0.03)]


@both
def gated_dilated(d):
    b, c, n, k = d.rows(8, 16), d.pick(64, 128), d.pick(2000, 4096), d.pick(1, 8, 64)

    def f(x, w, p):
        a, g = F.conv1d(F.pad(x, (2 * k, 0)), w, dilation=k).chunk(2, 1)
        y = torch.tanh(a) * torch.sigmoid(g)
        return x + F.conv1d(y, p)
    return f, [d.t(b, c, n), d.t(2 * c, c, 3, scale=0.05), d.t(c, c, 1, scale=0.05)]


@both
def conformer_conv(d):
    b, n, c = d.rows(8, 16), d.pick(400, 800), d.pick(256, 512)

    def f(x, g, h, w1, w2, w3, s, t):
        y = F.layer_norm(x, (c,), g, h).mT
        y = F.glu(F.conv1d(y, w1), 1)
        y = F.conv1d(y, w2, padding=15, groups=c)
        y = F.silu(y * s[:, None] + t[:, None])
        return x + F.conv1d(y, w3).mT
    return f, [d.t(b, n, c), d.t(c), d.t(c), d.t(2 * c, c, 1, scale=0.05), d.t(c, 1, 31, scale=0.2), d.t(c, c, 1, scale=0.05), d.t(c), d.t(c)]


@family
def gru_steps(d):
    b, h = d.rows(64, 256), d.pick(256, 512)

    def f(x, s, wi, wh):
        for t in range(8):
            r, z, n = F.linear(x[:, t], wi).chunk(3, -1)
            hr, hz, hn = F.linear(s, wh).chunk(3, -1)
            z = torch.sigmoid(z + hz)
            s = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * s
        return s
    return f, [d.t(b, 8, h), d.t(b, h), d.t(3 * h, h, scale=0.05), d.t(3 * h, h, scale=0.05)]


@family
def spatial_gating(d):
    b, n, c = d.rows(16, 64), d.pick(196, 256), d.pick(512, 768)

    def f(x, w, h, g, s):
        u, v = x.chunk(2, -1)
        v = F.layer_norm(v, (c // 2,), g, s)
        return u * (torch.einsum("nm,bmc->bnc", w, v) + h[:, None])
    return f, [d.t(b, n, c), d.t(n, n, scale=0.05), d.t(n), d.t(c // 2), d.t(c // 2)]


@family
def crf(d):
    b, n, t = d.rows(256, 1024), 10, d.pick(9, 32, 50)

    def f(e, w):
        a = e[:, 0]
        for i in range(1, n):
            a = torch.logsumexp(a[:, :, None] + w, 1) + e[:, i]
        return torch.logsumexp(a, -1)
    return f, [d.t(b, n, t, dtype=f32), d.t(t, t, dtype=f32)]


@family
def viterbi(d):
    b, n, t = d.rows(256, 1024), 10, d.pick(9, 32, 50)

    def f(e, w):
        a, back = e[:, 0], []
        for i in range(1, n):
            m = (a[:, :, None] + w).max(1)
            a = m.values + e[:, i]
            back.append(m.indices)
        return a, torch.stack(back, 1)
    return f, [d.t(b, n, t, dtype=f32), d.t(t, t, dtype=f32)]


# Decoding.


@family
def beams(d):
    b, k, v = d.rows(16, 64), d.pick(4, 5), d.pick(32000, 50257)

    def f(x, score):
        p = x.float().log_softmax(-1).view(b, k, v) + score[..., None]
        s, at = p.flatten(1).topk(k, -1)
        return s, at // v, at % v
    return f, [d.t(b * k, v), d.t(b, k, dtype=f32)]


@family
def nucleus(d):
    b, v = d.rows(16, 64), d.pick(8000, 32000)

    def f(x):
        p, at = (x.float() / 0.7).softmax(-1).sort(-1, descending=True)
        keep = p.cumsum(-1) - p < 0.9
        p = p * keep
        return torch.zeros_like(p).scatter(1, at, p / p.sum(-1, keepdim=True))
    return f, [d.t(b, v)]


@family
def penalties(d):
    b, v, n = d.rows(32, 64), d.pick(32000, 50257), d.pick(100, 500)

    def f(x, ids):
        s = torch.gather(x, 1, ids)
        x = x.scatter(1, ids, torch.where(s < 0, s * 1.2, s / 1.2))
        top = x.topk(50, -1).values[:, -1:]
        return torch.where(x < top, float("-inf"), x).float().softmax(-1)
    return f, [d.t(b, v), d.ids(v, b, n)]


@family
def paged_cache(d):
    b, h, e, p, n = d.rows(16, 32), 8, 128, 16, d.pick(32, 64)

    def f(q, k, v, table):
        kk = k[table].reshape(b, n * p, h, e).transpose(1, 2)
        vv = v[table].reshape(b, n * p, h, e).transpose(1, 2)
        return F.scaled_dot_product_attention(q, kk, vv)
    return f, [d.t(b, h, 1, e), d.t(b * n, p, h, e), d.t(b * n, p, h, e), d.ids(b * n, b, n)]


@both
def preference(d):
    b, n, v = 2 * d.rows(16, 32), d.pick(128, 256), d.pick(8000, 32000) // (8 if d.small else 1)

    def f(x, t, ref):
        p = x.float().log_softmax(-1).gather(-1, t[..., None])[..., 0].sum(-1)
        better, worse = (p - ref).chunk(2)
        return -F.logsigmoid(0.1 * (better - worse)).mean()
    return f, [d.t(b, n, v), d.ids(v, b, n), d.t(b, dtype=f32)]


@both
def policy(d):
    b, a = d.rows(65536, 262144), d.pick(6, 18)

    def f(x, v, at, old, adv, ret):
        lp = x.log_softmax(-1)
        r = (lp.gather(1, at[:, None])[:, 0] - old).exp()
        loss = -torch.min(r * adv, r.clamp(0.8, 1.2) * adv).mean()
        return loss + 0.5 * (v - ret).square().mean() + 0.01 * (lp.exp() * lp).sum(-1).mean()
    return f, [d.t(b, a, dtype=f32), d.t(b, dtype=f32), d.ids(a, b), d.t(b, dtype=f32), d.t(b, dtype=f32), d.t(b, dtype=f32)]


@family
def returns(d):
    b, n = d.rows(4096, 16384), d.pick(128, 1000)

    def f(r, v, done):
        g = torch.pow(0.97, torch.arange(n, device=r.device))
        delta = (r + 0.99 * v[:, 1:] * (1 - done) - v[:, :-1]) * g
        adv = delta.flip(1).cumsum(1).flip(1) / g
        return (adv - adv.mean()) / (adv.std() + 1e-8)
    return f, [d.t(b, n, dtype=f32), d.t(b, n + 1, dtype=f32), (torch.rand(b, n, device=d.device) > 0.99).float()]


# Points and graphs.


@both
def edge_conv(d):
    b, n, k, c = d.rows(8, 16), d.pick(512, 1024), d.pick(16, 20), d.pick(32, 64)

    def f(x, at, w):
        y = x[torch.arange(b, device=x.device)[:, None, None], at]
        e = torch.cat([y - x[:, :, None], x[:, :, None].expand_as(y)], -1)
        return F.leaky_relu(e @ w, 0.2).amax(2)
    return f, [d.t(b, n, c), d.ids(n, b, n, k), d.t(2 * c, c, scale=0.1)]


@family
def neighbours(d):
    b, n, k = d.rows(8, 16), d.pick(512, 1024), d.pick(16, 32)
    return lambda x: torch.cdist(x, x).topk(k, -1, largest=False), [d.t(b, n, 3, dtype=f32)]


@both
def edge_softmax(d):
    n, e, h, c = d.rows(16384, 65536), d.rows(131072, 524288), 4, d.pick(16, 32)

    def f(x, s, t, i, j):
        a = F.leaky_relu(s[i] + t[j], 0.2)
        m = torch.full((n, h), float("-inf"), device=x.device).scatter_reduce(0, j[:, None].expand(-1, h), a.detach(), "amax")
        a = (a - m[j]).exp()
        z = torch.zeros(n, h, device=x.device).index_add(0, j, a)
        a = a / (z[j] + 1e-9)
        return torch.zeros(n, h, c, device=x.device).index_add(0, j, x[i] * a[..., None])
    return f, [d.t(n, h, c, dtype=f32), d.t(n, h, dtype=f32), d.t(n, h, dtype=f32), d.ids(n, e), d.ids(n, e)]


@family
def voxels(d):
    n, c, v = d.rows(131072, 262144), d.pick(4, 16), 32

    def f(p, x):
        i = ((p + 1) * (v / 2)).long().clamp(0, v - 1)
        at = (i[:, 0] * v + i[:, 1]) * v + i[:, 2]
        s = torch.zeros(v**3, c, device=x.device).index_add(0, at, x)
        m = torch.zeros(v**3, device=x.device).index_add(0, at, torch.ones_like(x[:, 0]))
        return s / m.clamp(min=1)[:, None]
    return f, [torch.rand(n, 3, device=d.device) * 2 - 1, d.t(n, c, dtype=f32)]


@both
def bodies(d):
    n = d.pick(2048, 4096) // (4 if d.small else 1)

    def f(x, m):
        r = x[None] - x[:, None]
        q = (r.square().sum(-1) + 0.01).rsqrt()
        return (r * (m[None] * q**3)[..., None]).sum(1)
    return f, [d.t(n, 3, dtype=f32), torch.rand(n, device=d.device)]


@both
def radial(d):
    n, k, c = d.rows(65536, 262144), d.pick(16, 50), d.pick(64, 128)

    def f(r, mu, w, x):
        u = r / 5.0
        cut = 0.5 * (torch.cos(u * 3.14159265) + 1) * (u < 1)
        g = torch.exp(-10.0 * (r[:, None] - mu) ** 2)
        return (g @ w) * cut[:, None] * x
    return f, [torch.rand(n, device=d.device) * 6, torch.linspace(0, 5, k, device=d.device), d.t(k, c, dtype=f32, scale=0.2), d.t(n, c, dtype=f32)]


# Physics, finance, clusters.


@family
def diffusion_steps(d):
    b, n = d.rows(16, 64), d.pick(256, 500)

    def f(u):
        for _ in range(3):
            u = u + 0.1 * (u.roll(1, -1) + u.roll(-1, -1) + u.roll(1, -2) + u.roll(-1, -2) - 4 * u)
        return u
    return f, [d.t(b, n, n, dtype=f32)]


@family
def lattice(d):
    n = d.pick(512, 1000)

    def f(x, w, c):
        rho = x.sum(0)
        u = torch.einsum("qd,qxy->dxy", c, x) / rho
        cu = 3 * torch.einsum("qd,dxy->qxy", c, u)
        eq = rho * w[:, None, None] * (1 + cu + 0.5 * cu**2 - 1.5 * u.square().sum(0))
        return x - (x - eq) / 0.6
    return f, [torch.rand(9, n, n, device=d.device) + 0.1, torch.rand(9, device=d.device), d.ids(3, 9, 2).float() - 1]


@family
def options(d):
    n = d.rows(1 << 20, 1 << 22)

    def f(s, k, t, v):
        d1 = (torch.log(s / k) + (0.02 + v * v / 2) * t) / (v * t.sqrt())
        d2 = d1 - v * t.sqrt()
        cdf = lambda x: 0.5 * (1 + torch.erf(x * 0.70710678))
        return s * cdf(d1) - k * torch.exp(-0.02 * t) * cdf(d2)
    return f, [torch.rand(n, device=d.device) + 0.5 for _ in range(4)]


@family
def paths(d):
    n, t = d.rows(65536, 131072), d.pick(64, 252)

    def f(z):
        s = 100 * torch.exp((0.0002 + 0.01 * z).cumsum(1))
        return (s.mean(1) - 100).clamp(min=0).mean(), s.amax(1), (s[:, -1] < s.amin(1) * 1.1).float().mean()
    return f, [d.t(n, t, dtype=f32)]


@family
def clusters(d):
    n, k, c = d.rows(32768, 65536), d.pick(64, 512), d.pick(32, 64)

    def f(x, m):
        at = (x.square().sum(1)[:, None] - 2 * x @ m.T + m.square().sum(1)).argmin(1)
        s = torch.zeros_like(m).index_add(0, at, x)
        return s / torch.zeros(k, device=x.device).index_add(0, at, torch.ones_like(x[:, 0])).clamp(min=1)[:, None], at
    return f, [d.t(n, c, dtype=f32), d.t(k, c, dtype=f32)]


@family
def covariance(d):
    n, c = d.rows(32768, 131072), d.pick(64, 200)

    def f(x):
        y = x - x.mean(0)
        v = y.T @ y / (n - 1)
        s = v.diagonal().sqrt()
        return v / (s[:, None] * s)
    return f, [d.t(n, c, dtype=f32)]


@both
def kernel_matrix(d):
    n, m, c = d.rows(4096, 8192), d.pick(500, 2048), d.pick(8, 32)
    return lambda x, y, v: torch.exp(-0.5 * (x.square().sum(1)[:, None] - 2 * x @ y.T + y.square().sum(1)) / c) @ v, [d.t(n, c, dtype=f32), d.t(m, c, dtype=f32), d.t(m, 4, dtype=f32)]


# Recommenders.


@both
def cross_layers(d):
    b, c, r = d.rows(16384, 65536), d.pick(256, 512), 64

    def f(x, u, v, h):
        y = x
        for i in range(2):
            y = x * (y @ v[i] @ u[i] + h[i]) + y
        return y
    return f, [d.t(b, c), d.t(2, r, c, scale=0.05), d.t(2, c, r, scale=0.05), d.t(2, c)]


@both
def second_order(d):
    b, n, c = d.rows(8192, 32768), d.pick(26, 40), d.pick(16, 64)
    return lambda e, w: 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(-1) + (e * w).sum((1, 2)), [d.t(b, n, c), d.t(n, c)]


@both
def interest(d):
    b, n, c = d.rows(2048, 8192), d.pick(50, 100), d.pick(32, 64)

    def f(q, k, m, w1, w2):
        e = torch.cat([q[:, None].expand_as(k), k, q[:, None] - k, q[:, None] * k], -1)
        a = (torch.sigmoid(e @ w1) @ w2)[..., 0]
        a = a.masked_fill(~m, -1e4).softmax(-1)
        return (a[..., None] * k).sum(1)
    return f, [d.t(b, c), d.t(b, n, c), torch.rand(b, n, device=d.device) > 0.3, d.t(4 * c, 36, scale=0.1), d.t(36, 1, scale=0.1)]


@family
def hashed(d):
    b, n, c, v = d.rows(16384, 65536), d.pick(8, 26), d.pick(16, 32), 100000

    def f(ids, salt, w):
        h = (ids * salt + 12345) % 2147483647 % v
        return w[h].flatten(1), (ids >= 0).sum(1)
    return f, [d.ids(1 << 30, b, n), d.ids(1000, n) * 2 + 1, d.t(v, c)]


@both
def mixture_head(d):
    b, c, e, t = d.rows(8192, 32768), d.pick(256, 512), d.pick(4, 8), 2

    def f(x, w, g):
        y = F.relu(torch.einsum("bc,eco->beo", x, w))
        p = torch.einsum("bc,tce->bte", x, g).softmax(-1)
        return torch.einsum("bte,beo->bto", p, y)
    return f, [d.t(b, c), d.t(e, c, 64, scale=0.05), d.t(t, c, e, scale=0.05)]


# Images.


@both
def modulated(d):
    b, c, hw = d.rows(16, 32), d.pick(128, 256), d.pick(16, 32)

    def f(x, s, w):
        y = w[None] * s[:, None, :, None, None]
        y = y * (y.square().sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
        return F.conv2d(x.reshape(1, b * c, hw, hw), y.reshape(b * c, c, 3, 3), padding=1, groups=b).view(b, c, hw, hw)
    return f, [d.t(b, c, hw, hw), d.t(b, c), d.t(c, c, 3, 3, scale=0.05)]


@both
def time_block(d):
    b, c, hw = d.rows(8, 16), d.pick(128, 320), d.pick(32, 64)

    def f(x, t, g, h, w, u):
        scale, shift = F.linear(F.silu(t), u)[:, :, None, None].chunk(2, 1)
        y = F.group_norm(x, 32, g, h) * (1 + scale) + shift
        return x + F.conv2d(F.silu(y), w, padding=1)
    return f, [d.images(b, c, hw), d.t(b, 4 * c), d.t(c), d.t(c), d.t(c, c, 3, 3, scale=0.03), d.t(2 * c, 4 * c, scale=0.03)]


@both
def modulated_norm(d):
    b, n, c = d.rows(16, 32), d.pick(256, 1024), d.pick(768, 1152)

    def f(x, y, m):
        shift, scale, gate = m[:, None].chunk(3, -1)
        x = x + gate * y
        return x, F.layer_norm(x, (c,), eps=1e-6) * (1 + scale) + shift
    return f, [d.t(b, n, c), d.t(b, n, c), d.t(b, 3 * c)]


@both
def response_norm(d):
    b, c, hw = d.rows(16, 32), d.pick(384, 768), d.pick(14, 28)

    def f(x, g, h):
        n = x.float().norm(p=2, dim=(1, 2), keepdim=True)
        n = n / (n.mean(-1, keepdim=True) + 1e-6)
        return x + g * (x * n.to(x.dtype)) + h
    return f, [d.t(b, hw, hw, c), d.t(c), d.t(c)]


@family
def attention_maps(d):
    b, c, hw = d.rows(16, 32), d.pick(64, 256), d.pick(28, 56)

    def f(x, u, v, w):
        g = torch.sigmoid(sum(F.linear(F.relu(F.linear(p, u)), v) for p in (x.mean((2, 3)), x.amax((2, 3)))))
        x = x * g[:, :, None, None]
        s = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
        return x * torch.sigmoid(F.conv2d(s, w, padding=3))
    return f, [d.images(b, c, hw), d.t(c // 16, c, scale=0.1), d.t(c, c // 16, scale=0.1), d.t(1, 2, 7, 7, scale=0.1)]


@both
def pool_mixer(d):
    b, c, hw = d.rows(32, 64), d.pick(64, 128), d.pick(28, 56)

    def f(x, s, g, h):
        y = F.group_norm(x, 1, g, h)
        return x + s[:, None, None] * (F.avg_pool2d(y, 3, 1, 1, count_include_pad=False) - y)
    return f, [d.images(b, c, hw), d.t(c), d.t(c), d.t(c)]


@both
def spade(d):
    b, c, hw = d.rows(8, 16), d.pick(64, 128), d.pick(32, 64)

    def f(x, m, w):
        y = F.instance_norm(x)
        g, h = F.conv2d(m, w, padding=1).chunk(2, 1)
        return F.leaky_relu(y * (1 + g) + h, 0.2)
    return f, [d.images(b, c, hw), d.images(b, 16, hw), d.t(2 * c, 16, 3, 3, scale=0.1)]


@family
def adaptive_instance(d):
    b, c, hw = d.rows(8, 16), d.pick(128, 512), d.pick(32, 64)

    def f(x, y):
        mean, std = y.mean((2, 3), keepdim=True), (y.var((2, 3), keepdim=True) + 1e-5).sqrt()
        return (x - x.mean((2, 3), keepdim=True)) / (x.var((2, 3), keepdim=True) + 1e-5).sqrt() * std + mean
    return f, [d.images(b, c, hw), d.images(b, c, hw)]


@family
def pyramid(d):
    b, hw = d.rows(8, 16), d.pick(256, 512)

    def f(x):
        out = []
        for _ in range(3):
            y = F.avg_pool2d(x, 2)
            out.append((x - F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)).abs().mean())
            x = y
        return torch.stack(out)
    return f, [d.t(b, 3, hw, hw, dtype=f32)]


@family
def blurred(d):
    b, c, hw = d.rows(8, 16), 3, d.pick(256, 512)

    def f(x, k):
        x = F.pad(x, (5, 5, 5, 5), mode="reflect")
        x = F.conv2d(x, k.view(1, 1, 1, 11).expand(c, 1, 1, 11), groups=c)
        return F.conv2d(x, k.view(1, 1, 11, 1).expand(c, 1, 11, 1), groups=c)
    return f, [d.t(b, c, hw, hw, dtype=f32), torch.rand(11, device=d.device)]


@family
def edges(d):
    b, hw = d.rows(16, 32), d.pick(256, 512)

    def f(x, k):
        g = (x * torch.tensor([0.299, 0.587, 0.114], device=x.device)[:, None, None]).sum(1, keepdim=True)
        e = F.conv2d(g, k, padding=1)
        m = e.square().sum(1, keepdim=True).sqrt()
        return (m >= F.max_pool2d(m, 3, 1, 1)) * m, -F.max_pool2d(-g, 5, 1, 2)
    return f, [torch.rand(b, 3, hw, hw, device=d.device), d.t(2, 1, 3, 3, dtype=f32)]


@family
def cosines(d):
    b, hw = d.rows(16, 32), d.pick(256, 512)

    def f(x, k, q):
        y = x.view(b, 3, hw // 8, 8, hw // 8, 8).permute(0, 1, 2, 4, 3, 5)
        y = torch.round(k @ (y - 128) @ k.T / q) * q
        y = k.T @ y @ k + 128
        return y.permute(0, 1, 2, 4, 3, 5).reshape(b, 3, hw, hw).clamp(0, 255)
    return f, [torch.rand(b, 3, hw, hw, device=d.device) * 255, d.t(8, 8, dtype=f32, scale=0.35), torch.rand(8, 8, device=d.device) * 50 + 1]


@family
def correlations(d):
    b, c, hw = d.rows(4, 8), d.pick(128, 256), d.pick(32, 48)

    def f(x, y):
        v = (x.flatten(2).mT @ y.flatten(2) / c**0.5).view(b * hw * hw, 1, hw, hw)
        out = [v]
        for _ in range(2):
            v = F.avg_pool2d(v, 2)
            out.append(v)
        return out
    return f, [d.t(b, c, hw, hw), d.t(b, c, hw, hw)]


@family
def decomposed_positions(d):
    b, h, n, e = d.rows(4, 16), 12, 14, 64

    def f(q, k, v, rh, rw):
        p = q.view(b, h, n, n, e)
        bias = torch.einsum("bhyxe,yke->bhyxk", p, rh)[..., :, None] + torch.einsum("bhyxe,xke->bhyxk", p, rw)[..., None, :]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.reshape(b, h, n * n, n * n))
    return f, [d.t(b, h, n * n, e) for _ in range(3)] + [d.t(n, n, e, scale=0.1), d.t(n, n, e, scale=0.1)]


@family
def quantizer(d):
    n, k, c = d.rows(16384, 65536), d.pick(512, 1024), d.pick(64, 256)

    def f(x, w):
        at = (x.square().sum(1)[:, None] - 2 * x @ w.T + w.square().sum(1)).argmin(1)
        q = F.embedding(at, w)
        return x + (q - x).detach(), at, F.mse_loss(q, x), F.one_hot(at, k).float().mean(0)
    return f, [d.t(n, c, dtype=f32), d.t(k, c, dtype=f32)]


@both
def finite_levels(d):
    n, c = d.rows(65536, 262144), d.pick(4, 8)

    def f(x, levels, base):
        half = (levels - 1) / 2
        y = torch.tanh(x) * half
        q = y + (torch.round(y) - y).detach()
        return q / half, ((torch.round(y.detach()) + half) * base).sum(-1)
    return f, [d.t(n, c, dtype=f32), torch.full((c,), 5.0, device=d.device), 5.0 ** torch.arange(c, device=d.device)]


# Protein folding.


@both
def outer_mean(d):
    s, n, c = d.pick(32, 64), d.pick(96, 160) // (4 if d.small else 1), 16

    def f(a, b, w):
        o = torch.einsum("sic,sjd->ijcd", a, b) / s
        return o.flatten(2) @ w
    return f, [d.t(s, n, c), d.t(s, n, c), d.t(c * c, 64, scale=0.05)]


@both
def triangle_attention(d):
    n, h, e = d.pick(96, 160) // (4 if d.small else 1), 4, 32

    def f(x, g, be, w, wb, wo):
        y = F.layer_norm(x, (h * e,), g, be)
        q, k, v, gate = (y @ w).view(n, n, 4, h, e).permute(2, 0, 3, 1, 4)
        bias = (y @ wb).permute(2, 0, 1)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None].expand(n, -1, -1, -1)) * torch.sigmoid(gate)
        return x + o.transpose(1, 2).flatten(2) @ wo
    return f, [d.t(n, n, h * e), d.t(h * e), d.t(h * e), d.t(h * e, 4 * h * e, scale=0.05), d.t(h * e, h, scale=0.05), d.t(h * e, h * e, scale=0.05)]


# Speech.


@family
def spectra(d):
    b, n = d.rows(16, 32), d.pick(48000, 80000)

    def f(x, w, c, s, mel):
        y = x.unfold(-1, 400, 160) * w
        p = (y @ c).square() + (y @ s).square()
        m = torch.log10((p @ mel).clamp(min=1e-10))
        return torch.maximum(m, m.amax((1, 2), keepdim=True) - 8)
    return f, [d.t(b, n, dtype=f32), torch.hann_window(400, device=d.device), d.t(400, 201, dtype=f32), d.t(400, 201, dtype=f32), torch.rand(201, 80, device=d.device)]


@family
def overlap_add(d):
    b, n, k = d.rows(16, 32), d.pick(200, 500), 512

    def f(x, w):
        y = x * w
        return F.fold(y.mT, (1, (n - 1) * 128 + k), (1, k), stride=(1, 128))[:, 0, 0]
    return f, [d.t(b, n, k, dtype=f32), torch.hann_window(k, device=d.device)]


@both
def stacked_frames(d):
    b, n, c = d.rows(16, 32), d.pick(400, 1000), d.pick(80, 256)

    def f(x, m):
        y = (x - (x * m).sum(1, keepdim=True) / m.sum(1, keepdim=True)) * m
        return torch.cat([y[:, 0::4], y[:, 1::4], y[:, 2::4], y[:, 3::4]], -1)
    return f, [d.t(b, n, c), (torch.arange(n, device=d.device) < n * 3 // 4).to(d.float)[None, :, None].expand(b, -1, -1).contiguous()]


# Series.


@both
def decomposition(d):
    b, n, c = d.rows(32, 128), d.pick(96, 336), d.pick(21, 64)

    def f(x, w):
        p = F.pad(x.mT, (12, 12), mode="replicate")
        trend = F.avg_pool1d(p, 25, 1).mT
        return (x - trend), (trend.mT @ w).mT
    return f, [d.t(b, n, c), d.t(n, 96, scale=0.05)]


@both
def reversible(d):
    b, n, c = d.rows(64, 256), d.pick(96, 512), d.pick(21, 128)

    def f(x, g, h):
        mean, std = x.mean(1, keepdim=True).detach(), (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt().detach()
        y = (x - mean) / std * g + h
        return y.mT.unfold(-1, 16, 8)
    return f, [d.t(b, n, c, dtype=f32), d.t(c, dtype=f32), d.t(c, dtype=f32)]


# Losses.


@both
def triplets(d):
    n, c = d.pick(512, 1024), d.pick(128, 256)

    def f(x, y):
        x = F.normalize(x.float(), dim=-1)
        s = x @ x.T
        same = y[:, None] == y[None]
        worst = torch.where(same, s, 2.0).amin(1)
        near = torch.where(same, -2.0, s).amax(1)
        return F.relu(near - worst + 0.2).mean()
    return f, [d.t(n, c), d.ids(n // 4, n)]


@both
def margins(d):
    n, c, k = d.rows(512, 2048), d.pick(128, 512), d.pick(1000, 10000)

    def f(x, w, y):
        cos = F.linear(F.normalize(x), F.normalize(w)).float().clamp(-0.999, 0.999)
        hard = torch.cos(torch.acos(cos) + 0.3)
        return F.cross_entropy(64 * torch.where(F.one_hot(y, k).bool(), hard, cos), y)
    return f, [d.t(n, c), d.t(k, c), d.ids(k, n)]


@both
def lovasz(d):
    n = d.rows(65536, 262144)

    def f(x, y):
        e, at = (1 - x * (2 * y - 1)).sort(descending=True)
        g = y[at]
        i, u = g.sum() - g.cumsum(0), g.sum() + (1 - g).cumsum(0)
        j = 1 - i / u
        return (F.relu(e) * torch.cat([j[:1], j[1:] - j[:-1]])).sum()
    return f, [d.t(n, dtype=f32), (torch.rand(n, device=d.device) > 0.7).float()]


@both
def divergence(d):
    b, c, hw = d.rows(8, 16), d.pick(19, 32), d.pick(64, 128)

    def f(x, y):
        p, q = F.log_softmax(x.float() / 2, 1), F.log_softmax(y.float() / 2, 1)
        return F.kl_div(p, q, log_target=True, reduction="batchmean") * 4
    return f, [d.images(b, c, hw), d.images(b, c, hw)]


@family
def matching(d):
    b, n, m, c = d.rows(16, 32), d.pick(100, 300), d.pick(20, 60), 91

    def f(x, p, y, t):
        cls = -x.softmax(-1)[torch.arange(b, device=x.device)[:, None, None], torch.arange(n, device=x.device)[None, :, None], y[:, None, :]]
        l1 = torch.cdist(p, t, p=1)
        lt, rb = torch.max(p[:, :, None, :2], t[:, None, :, :2]), torch.min(p[:, :, None, 2:], t[:, None, :, 2:])
        i = (rb - lt).clamp(min=0).prod(-1)
        u = (p[..., 2:] - p[..., :2]).prod(-1)[:, :, None] + (t[..., 2:] - t[..., :2]).prod(-1)[:, None] - i
        return 5 * l1 + cls - 2 * i / u
    def box(k):
        p = torch.rand(b, k, 2, device=d.device)
        return torch.cat([p, p + torch.rand(b, k, 2, device=d.device) + 0.05], -1)
    return f, [d.t(b, n, c, dtype=f32), box(n), d.ids(c, b, m), box(m)]


# Weights and steps.


@family
def lamb(d):
    n = d.pick(10, 30)
    shapes = [d.pick((768, 768), (768,), (1024, 512), (64, 64, 3, 3)) for _ in range(n)]

    def f(*t):
        out = []
        for p, g, m, v in zip(t[:n], t[n:2 * n], t[2 * n:3 * n], t[3 * n:]):
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
            u = m / (v.sqrt() + 1e-6) + 0.01 * p
            out += [p - 0.001 * (p.norm() / u.norm()) * u, m, v]
        return out
    return f, [d.t(*s, dtype=f32).abs() for _ in range(4) for s in shapes]


@family
def spectral_norm(d):
    m, n = d.pick(512, 1024, 4096), d.pick(512, 2304)

    def f(w, u):
        v = F.normalize(w.T @ u, dim=0)
        u = F.normalize(w @ v, dim=0)
        return w / (u @ w @ v), u
    return f, [d.t(m, n, dtype=f32), d.t(m, dtype=f32)]


@family
def group_int4(d):
    m, k, n = d.pick(1, 16, 256), d.pick(2048, 4096), d.pick(2048, 11008)

    def f(x, w, s, z):
        q = torch.stack([w & 15, w >> 4], -1).view(n, k // 128, 128)
        return F.linear(x, ((q - z[..., None]) * s[..., None]).view(n, k).to(x.dtype))
    return f, [d.t(m, k), torch.randint(0, 255, (n, k // 2), dtype=torch.uint8, device=d.device), d.t(n, k // 128, scale=0.02), d.ids(15, n, k // 128).to(torch.uint8)]


@both
def fake_quantized(d):
    m, k, n = d.rows(4096, 8192), d.pick(512, 1024), d.pick(512, 1024)

    def f(x, w, s):
        q = (w / s[:, None]).round().clamp(-8, 7) * s[:, None]
        return F.linear(x, w + (q - w).detach())
    return f, [d.t(m, k), d.t(n, k), d.t(n).abs() + 0.1]


@family
def normal_float(d):
    m, k, n = d.pick(1, 32, 256), d.pick(2048, 4096), d.pick(2048, 4096)
    return lambda x, w, t, s: F.linear(x, (t[w.long()].view(n, k // 64, 64) * s[..., None]).view(n, k)), [d.t(m, k), torch.randint(0, 15, (n, k), dtype=torch.uint8, device=d.device), d.t(16), d.t(n, k // 64, scale=0.02)]


if __name__ == "__main__":
    families.main()
