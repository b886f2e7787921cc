"""Further random workloads, as families.py draws and measures them: what vision, speech, rendering, recommenders and optimizers run besides.

    further.py SEED [the options of families.py]
"""

import functools

import torch
import torch.nn.functional as F

import families
from families import family, gradient

families.FORWARD.clear()
families.GRADIENT.clear()
f32 = torch.float32


def both(draw):
    """A workload that is measured with its gradient too, as a function of its own."""
    family(draw)

    @gradient
    @functools.wraps(draw)
    def with_gradient(d):
        return draw(d)

    return draw


def windows(x, w):
    b, h, _, c = x.shape
    return x.view(b, h // w, w, h // w, w, c).transpose(2, 3).reshape(-1, w * w, c)


def joined(x, w, b, h):
    c = x.shape[-1]
    return x.view(b, h // w, h // w, w, w, c).transpose(2, 3).reshape(b, h, h, c)


def swin_block(w, heads, shift):

    def f(x, g, be, wqkv, wo, bias):
        b, h, _, c = x.shape
        y = F.layer_norm(x, (c,), g, be)
        y = windows(torch.roll(y, (-shift, -shift), (1, 2)), w)
        q, k, v = F.linear(y, wqkv).view(-1, w * w, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
        a = (q * (c // heads) ** (-0.5) @ k.transpose(-1, -2) + bias).softmax(-1)
        y = F.linear((a @ v).transpose(1, 2).reshape(-1, w * w, c), wo)
        return x + torch.roll(joined(y, w, b, h), (shift, shift), (1, 2))
    return f


@both
def swin(d):
    b, h, heads, w = d.rows(16, 32), d.pick(28, 56), d.pick(3, 6), 7
    c = heads * 32
    return swin_block(w, heads, d.pick(0, 3)), [d.t(b, h, h, c), d.t(c), d.t(c), d.t(3 * c, c, scale=0.05), d.t(c, c, scale=0.05), d.t(heads, w * w, w * w)]


@both
def squeeze(d):
    b, c, hw = d.rows(32, 64), d.pick(96, 240, 672), d.pick(14, 28, 56)
    return lambda x, u, v: x * torch.sigmoid(F.linear(F.silu(F.linear(x.mean((2, 3)), u)), v))[:, :, None, None], [d.images(b, c, hw), d.t(c // 4, c, scale=0.05), d.t(c, c // 4, scale=0.05)]


@both
def norm_first(d):
    b, c, hw = d.rows(16, 32), d.pick(96, 192, 384), d.pick(14, 28, 56)

    def f(x, w, h):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        return (x - u) / torch.sqrt(s + 1e-06) * w[:, None, None] + h[:, None, None]
    return f, [d.t(b, c, hw, hw), d.t(c), d.t(c)]


@both
def pixel_shuffled(d):
    b, c, hw = d.rows(4, 16), d.pick(32, 64), d.pick(64, 96)
    return lambda x, w, p: F.prelu(F.pixel_shuffle(F.conv2d(x, w, padding=1), 2), p), [d.images(b, c, hw), d.t(4 * c, c, 3, 3, scale=0.05), d.t(c)]


@both
def bucket_bias(d):
    b, h, n = d.rows(8, 16), 12, d.pick(256, 512)

    def f(q, k, v, table, at):
        return (q @ k.transpose(-1, -2) + table[at].permute(2, 0, 1)).softmax(-1) @ v
    return f, [d.t(b, h, n, 64, scale=0.3), d.t(b, h, n, 64, scale=0.3), d.t(b, h, n, 64), d.t(32, h), d.ids(32, n, n)]


@family
def rendering(d):
    r, s = d.rows(16384, 65536), d.pick(64, 128)

    def f(sigma, rgb, delta):
        a = 1 - torch.exp(-F.relu(sigma) * delta)
        t = torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a + 1e-10], 1), 1)[:, :-1]
        w = a * t
        return ((w[..., None] * torch.sigmoid(rgb)).sum(1), w.sum(1))
    return f, [d.t(r, s, dtype=f32), d.t(r, s, 3, dtype=f32), torch.rand(r, s, device=d.device)]


@family
def encoding(d):
    n, k = d.rows(65536, 262144), d.pick(6, 10)
    return lambda x, f: torch.cat([x, torch.sin(x[..., None] * f).flatten(1), torch.cos(x[..., None] * f).flatten(1)], -1), [d.t(n, 3, dtype=f32), 2.0 ** torch.arange(k, device=d.device)]


@family
def ious(d):
    n, m = d.rows(2000, 8400), d.pick(100, 300)

    def f(a, b):
        lt, rb = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
        i = (rb - lt).clamp(min=0).prod(-1)
        area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])
        iou = i / (area(a)[:, None] + area(b)[None] - i + 1e-06)
        return iou.max(1)
    box = lambda k: (lambda p: torch.cat([p, p + torch.rand(k, 2, device=d.device)], 1))(torch.rand(k, 2, device=d.device))
    return f, [box(n), box(m)]


@family
def focal(d):
    n, c = d.rows(65536, 131072), d.pick(20, 80)

    def f(x, t):
        p = torch.sigmoid(x.float())
        ce = F.binary_cross_entropy_with_logits(x.float(), t, reduction="none")
        pt = p * t + (1 - p) * (1 - t)
        return ((0.25 * t + 0.75 * (1 - t)) * ce * (1 - pt) ** 2).sum()
    return f, [d.t(n, c), (torch.rand(n, c, device=d.device) > 0.95).float()]


@both
def dice(d):
    b, c, hw = d.rows(8, 16), d.pick(1, 4, 21), d.pick(128, 256)

    def f(x, t):
        p = x.float().softmax(1) if x.shape[1] > 1 else x.float().sigmoid()
        i = (p * t).sum((2, 3))
        s = p.sum((2, 3)) + t.sum((2, 3))
        return 1 - ((2 * i + 1) / (s + 1)).mean()
    return f, [d.images(b, c, hw), torch.rand(b, c, hw, hw, device=d.device)]


@family
def position_conv(d):
    b, c, t = d.rows(8, 16), d.pick(512, 768), d.pick(499, 1000)
    return lambda x, w, h: F.gelu(F.conv1d(x, w, h, padding=64, groups=16)[..., :-1]), [d.t(b, c, t), d.t(c, c // 16, 128, scale=0.02), d.t(c)]


@family
def vocoder(d):
    b, c, t = d.rows(4, 16), d.pick(128, 256), d.pick(256, 400)

    def f(x, w, a):
        y = F.conv_transpose1d(x, w, stride=4, padding=2)
        return y + torch.sin(y * a[:, None]).pow(2) / (a[:, None] + 1e-09)
    return f, [d.t(b, c, t), d.t(c, c // 2, 8, scale=0.05), d.t(c // 2).abs() + 0.5]


@family
def decode_step(d):
    b, h, g, n, e = d.rows(16, 64), 32, d.pick(4, 8), d.pick(1024, 4000), 128

    def f(q, k, v, n):
        m = torch.arange(k.shape[2], device=k.device) <= n[:, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=m[:, None, None], enable_gqa=True)
    return f, [d.t(b, h, 1, e), d.t(b, g, n, e), d.t(b, g, n, e), d.ids(n, b)]


@family
def routing(d):
    n, e, k, c = d.rows(8192, 32768), d.pick(8, 64), d.pick(2, 4), d.pick(512, 1024)

    def f(x, w):
        p, at = (x @ w).float().softmax(-1).topk(k, -1)
        p = p / p.sum(-1, keepdim=True)
        one = F.one_hot(at, e)
        place = one.flatten(0, 1).cumsum(0).view_as(one) - 1
        return (p, at, (place * one).sum(-1), one.float().mean((0, 1)))
    return f, [d.t(n, c), d.t(c, e, scale=0.05)]


@family
def quantized(d):
    m, k = d.rows(4096, 16384), d.pick(1024, 4096)

    def f(x):
        s = x.abs().amax(-1, keepdim=True).float() / 127 + 1e-09
        return (torch.round(x / s).clamp(-128, 127).to(torch.int8), s)
    return f, [d.t(m, k)]


@family
def fp8_rows(d):
    m, k = d.rows(4096, 16384), d.pick(1024, 4096)

    def f(x):
        s = 448.0 / x.abs().amax(-1, keepdim=True).float().clamp(min=0.0001)
        return ((x.float() * s).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8), 1 / s)
    return f, [d.t(m, k)]


@family
def small_matrices(d):
    n, k = d.rows(65536, 262144), d.pick(3, 4, 6)
    return lambda a, b: a @ b @ a.transpose(-1, -2), [d.t(n, k, k, dtype=f32), d.t(n, k, k, dtype=f32)]


@both
def rotations(d):
    n = d.rows(1 << 18, 1 << 20)

    def f(q, v):
        q = F.normalize(q, dim=-1)
        u, s = q[:, 1:], q[:, :1]
        t = 2 * torch.linalg.cross(u, v, dim=-1)
        return v + s * t + torch.linalg.cross(u, t, dim=-1)
    return f, [d.t(n, 4, dtype=f32), d.t(n, 3, dtype=f32)]


@family
def gumbel(d):
    m, n = d.rows(64, 512), d.pick(32000, 50257)
    return lambda x, u: ((x.float() / 0.8).softmax(-1) / -torch.log(u)).argmax(-1), [d.t(m, n), torch.rand(m, n, device=d.device) * 0.99 + 0.001]


@both
def pooled_tokens(d):
    b, t, c = d.rows(64, 256), d.pick(128, 512), d.pick(384, 768)
    return lambda x, m: F.normalize((x * m[..., None]).sum(1) / m.sum(1, keepdim=True).clamp(min=1e-09), dim=-1), [d.t(b, t, c), (torch.rand(b, t, device=d.device) > 0.3).to(d.float)]


@family
def mean_weights(d):
    n = d.pick(20, 60)
    shapes = [d.pick((768, 768), (768,), (1024, 512), (64, 64, 3, 3)) for _ in range(n)]
    return lambda *t: torch._foreach_lerp(list(t[:n]), list(t[n:]), 0.001), [d.t(*s, dtype=f32) for _ in range(2) for s in shapes]


@family
def factored(d):
    m, n = d.pick(1024, 4096), d.pick(1024, 4000)

    def f(g, r, c, p):
        g2 = g * g + 1e-30
        r = r * 0.99 + g2.mean(1) * 0.01
        c = c * 0.99 + g2.mean(0) * 0.01
        u = g * (r / r.mean()).rsqrt()[:, None] * c.rsqrt()[None]
        u = u / u.pow(2).mean().sqrt().clamp(min=1.0)
        return (p - 0.001 * u, r, c)
    return f, [d.t(m, n, dtype=f32), d.t(m, dtype=f32).abs(), d.t(n, dtype=f32).abs(), d.t(m, n, dtype=f32)]


@family
def muon(d):
    m, n = d.pick(768, 1024), d.pick(768, 3072)

    def f(g):
        x = g / (g.norm() + 1e-07)
        x = x if m <= n else x.t()
        for _ in range(5):
            a = x @ x.t()
            b = -4.775 * a + 2.0315 * a @ a
            x = 3.4445 * x + b @ x
        return x
    return f, [d.t(m, n)]


@both
def weight_norm(d):
    b, c, t = d.rows(8, 16), d.pick(128, 256), d.pick(500, 1000)
    return lambda x, g, v: F.conv1d(F.leaky_relu(x, 0.1), g * v / v.norm(dim=(1, 2), keepdim=True), padding=3, dilation=3)[..., :t], [d.t(b, c, t), d.t(c, 1, 1), d.t(c, c, 3)]


@family
def hinge(d):
    b, n = d.rows(4096, 16384), d.pick(500, 1000)

    def f(x, t):
        true = x.gather(1, t[:, None])
        return ((x - true + 1).clamp(min=0).sum(1) - 1).mean()
    return f, [d.t(b, n, dtype=f32), d.ids(n, b)]


@both
def upsampled_sum(d):
    b, c, hw = d.rows(8, 16), d.pick(64, 256), d.pick(32, 56)
    return lambda x, y, w: F.relu(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False) + F.conv2d(y, w)), [d.images(b, c, hw), d.images(b, c // 2, 2 * hw), d.t(c, c // 2, 1, 1, scale=0.05)]


@family
def spp(d):
    b, c, hw = d.rows(16, 32), d.pick(128, 256), d.pick(20, 40)
    return lambda x: torch.cat([x] + [F.max_pool2d(x, k, 1, k // 2) for k in (5, 9, 13)], 1), [d.images(b, c, hw)]


@family
def gradients_image(d):
    b, hw = d.rows(16, 32), d.pick(256, 512)

    def f(x):
        dx, dy = x[..., :, 1:] - x[..., :, :-1], x[..., 1:, :] - x[..., :-1, :]
        return dx.abs().mean() + dy.abs().mean()
    return f, [d.t(b, 3, hw, hw)]


@family
def ssim(d):
    b, hw = d.rows(8, 16), d.pick(128, 256)

    def f(x, y, w):
        g = lambda t: F.conv2d(t, w, padding=5, groups=3)
        mx, my = g(x), g(y)
        sx, sy, sxy = g(x * x) - mx * mx, g(y * y) - my * my, g(x * y) - mx * my
        return ((2 * mx * my + 0.0001) * (2 * sxy + 0.0009) / ((mx * mx + my * my + 0.0001) * (sx + sy + 0.0009))).mean()
    return f, [torch.rand(b, 3, hw, hw, device=d.device), torch.rand(b, 3, hw, hw, device=d.device), torch.full((3, 1, 11, 11), 1 / 121.0, device=d.device)]


@both
def rms_linear(d):
    m, c, n = d.rows(4096, 8192), d.pick(1024, 2048), d.pick(1024, 2816)
    return lambda x, g, w: F.linear(x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-06).to(x.dtype) * g, w), [d.t(m, c), d.t(c), d.t(n, c, scale=0.03)]


@family
def pair_bias(d):
    b, n, c = 1, d.pick(128, 256), d.pick(64, 128)

    def f(z, w, g, h, p):
        y = F.layer_norm(z, (c,), g, h)
        a, e = F.linear(y, w).chunk(2, -1)
        x = torch.einsum("ikc,jkc->ijc", torch.sigmoid(a) * a, e)
        return z + F.linear(x, p)
    return f, [d.t(n, n, c), d.t(2 * c, c, scale=0.05), d.t(c), d.t(c), d.t(c, c, scale=0.01)]


@gradient
def batch_norm(d):
    b, c, hw = d.rows(32, 64), d.pick(64, 256), d.pick(14, 28, 56)
    return lambda x, w, h: F.relu(F.batch_norm(x, None, None, w, h, True)), [d.images(b, c, hw), d.t(c), d.t(c)]


@gradient
def renderings(d):
    f, a = rendering(d)
    return lambda *t: f(*t)[0], a


@gradient
def huber(d):
    m, n = d.rows(8192, 32768), d.pick(500, 1000)
    return lambda x, y: F.smooth_l1_loss(x.float(), y.float()), [d.t(m, n), d.t(m, n)]


if __name__ == "__main__":
    families.main()
