"""Networks of `bench/zoo.py` that no package has, of kinds that people train."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    """Two convolutions with group norm, shifted by an embedding of the time step, and a way around them."""

    def __init__(self, inputs: int, outputs: int, embedded: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shift = nn.Linear(embedded, outputs)
        self.around = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, t):
        y = self.conv1(nn.functional.silu(self.norm1(x)))
        y = y + self.shift(nn.functional.silu(t))[:, :, None, None]
        return self.around(x) + self.conv2(nn.functional.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, channels: int, heads: int = 4):
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(8, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        n, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, 3, self.heads, c // self.heads, h * w).transpose(-1, -2).unbind(1)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(-1, -2).reshape(n, c, h, w))


class UNet(nn.Module):
    """The network of a small diffusion model: three resolutions, attention at the lowest, skips between equal ones."""

    def __init__(self, width: int = 64, embedded: int = 256, levels=(1, 2, 4)):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, embedded), nn.SiLU(), nn.Linear(embedded, embedded))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        channels = [width * level for level in levels]
        ends = list(zip([width, *channels], channels))
        self.down = nn.ModuleList(Residual(a, b, embedded) for a, b in ends)
        self.shrink = nn.ModuleList(nn.Conv2d(c, c, 3, stride=2, padding=1) for c in channels[:-1])
        self.middle = Attention(channels[-1])
        self.up = nn.ModuleList(Residual(2 * b, a, embedded) for a, b in reversed(ends))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(a, a, 4, stride=2, padding=1) for a, _ in reversed(ends[1:]))
        self.last = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x, step):
        half = self.width // 2
        rates = torch.exp(torch.arange(half, device=x.device, dtype=x.dtype) * (-math.log(10000.0) / half))
        angles = step[:, None] * rates
        t = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        y, skips = self.first(x), []
        for i, block in enumerate(self.down):
            y = block(y, t)
            skips.append(y)
            y = self.shrink[i](y) if i < len(self.shrink) else self.middle(y)
        for i, block in enumerate(self.up):
            y = block(torch.cat([y, skips.pop()], 1), t)
            y = self.grow[i](y) if i < len(self.grow) else y
        return self.last(y)


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int):
        super().__init__()
        self.a, self.b = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + 0.1 * self.b(F.relu(self.a(x)))


class SuperResolution(nn.Sequential):
    """EDSR's baseline at half its depth: four times as many pixels in each direction."""

    def __init__(self, channels: int = 64):
        conv = lambda inputs, outputs: nn.Conv2d(inputs, outputs, 3, padding=1)
        up = [layer for _ in range(2) for layer in (conv(channels, 4 * channels), nn.PixelShuffle(2))]
        super().__init__(conv(3, channels), *(Block(channels) for _ in range(8)), *up, conv(channels, 3))


class Generator(nn.Sequential):
    """DCGAN's: transposed convolutions with batch norm, to 64 x 64."""

    def __init__(self, channels: int = 512):
        grown = lambda a, b, *geometry: [nn.ConvTranspose2d(a, b, 4, *geometry), nn.BatchNorm2d(b), nn.ReLU()]
        halves = [channels >> i for i in range(5)]
        up = [layer for a, b in zip(halves, halves[1:]) for layer in grown(a, b, 2, 1)]
        super().__init__(*grown(128, channels, 1, 0), *up, nn.Conv2d(halves[-1], 3, 3, padding=1), nn.Tanh())


class Codes(nn.Module):
    """A VQ-VAE: each place of a small image is replaced by the nearest of 512 codes, whose gradient passes by. Gives the loss."""

    def __init__(self):
        super().__init__()
        conv = lambda a, b, size=3, stride=1: nn.Conv2d(a, b, size, stride, 1)
        self.encoder = nn.Sequential(conv(3, 64, 4, 2), nn.SiLU(), conv(64, 128, 4, 2), nn.SiLU(), conv(128, 64))
        self.codes = nn.Embedding(512, 64)
        up = lambda a, b: (conv(a, b), nn.GroupNorm(8, b), nn.SiLU(), nn.Upsample(scale_factor=2))
        self.decoder = nn.Sequential(*up(64, 128), *up(128, 64), conv(64, 3))

    def forward(self, x):
        z = self.encoder(x).permute(0, 2, 3, 1)
        flat, table = z.reshape(-1, 64), self.codes.weight
        distance = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ table.T + table.pow(2).sum(1)
        q = self.codes(distance.argmin(1)).view(z.shape)
        y = self.decoder((z + (q - z).detach()).permute(0, 3, 1, 2))
        return F.mse_loss(y, x) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())


class Points(nn.Module):
    """PointNet++'s dense form: features of points, and the greatest of all beside each."""

    def __init__(self, classes: int = 40):
        super().__init__()
        layer = lambda a, b: nn.Sequential(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
        self.own, self.all = nn.Sequential(layer(3, 64), layer(64, 128)), nn.Sequential(layer(256, 512), layer(512, 1024))
        self.head = nn.Linear(1024, classes)

    def forward(self, x):
        y = self.own(x)
        y = torch.cat([y, y.amax(2, keepdim=True).expand_as(y)], 1)
        return self.head(self.all(y).amax(2))


class Waves(nn.Module):
    """WaveNet's layers: dilated convolutions with gates, whose skips are added."""

    def __init__(self, channels: int = 64, layers: int = 8):
        super().__init__()
        dilated = lambda d: nn.Conv1d(channels, 2 * channels, 3, padding=d, dilation=d)
        self.first, self.last = nn.Conv1d(1, channels, 1), nn.Conv1d(channels, 1, 1)
        self.gates = nn.ModuleList(dilated(1 << i) for i in range(layers))
        self.ways = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 1) for _ in range(layers))

    def forward(self, x):
        x, skips = self.first(x), 0
        for gate, way in zip(self.gates, self.ways):
            a, b = gate(x).chunk(2, 1)
            more, skip = way(a.tanh() * b.sigmoid()).chunk(2, 1)
            x, skips = (x + more) * 0.5**0.5, skips + skip
        return self.last(F.relu(skips))


class GraphSums(nn.Module):
    """Graph convolutions: what neighbours have, weighted by degrees, is added."""

    def __init__(self, features: int, width: int = 256, classes: int = 64):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in [(features, width), (width, width), (width, classes)])

    def forward(self, x, start, end):
        degree = torch.zeros_like(x[:, 0]).index_add(0, end, torch.ones_like(end, dtype=x.dtype)).clamp_min(1).rsqrt()
        weight = (degree[start] * degree[end])[:, None]
        for i, layer in enumerate(self.layers):
            y = layer(x if i == 0 else F.relu(x))
            x = y + torch.zeros_like(y).index_add(0, end, y[start] * weight)
        return x.log_softmax(-1)


class GraphAttention(nn.Module):
    """Two layers of attention over the edges that end at a node."""

    def __init__(self, features: int, heads: int = 8, width: int = 32):
        super().__init__()
        self.heads = heads
        sizes = [(features, width), (heads * width, width // 2)]
        self.layers = nn.ModuleList(nn.Linear(a, heads * b, bias=False) for a, b in sizes)
        self.scores = nn.ParameterList(torch.randn(2, heads, b) * 0.1 for _, b in sizes)

    def forward(self, x, start, end):
        for i, (layer, score) in enumerate(zip(self.layers, self.scores)):
            y = layer(x if i == 0 else F.elu(x)).unflatten(-1, (self.heads, -1))
            here, there = (y * score[0]).sum(-1), (y * score[1]).sum(-1)
            z = F.leaky_relu(here[start] + there[end], 0.2)
            most = torch.full_like(here, -1e4).scatter_reduce(0, end[:, None].expand_as(z), z, "amax").detach()
            p = (z - most[end]).exp()
            p = p / (torch.zeros_like(here).index_add(0, end, p) + 1e-6)[end]
            x = torch.zeros_like(y).index_add(0, end, y[start] * p[..., None]).flatten(1)
        return x


class Recommender(nn.Module):
    """DLRM: embeddings of categories and a vector of numbers, and the products of each pair."""

    def __init__(self, tables: int = 26, words: int = 10000, width: int = 64):
        super().__init__()
        dense = lambda *sizes: nn.Sequential(*(m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU())))
        self.tables = nn.ModuleList(nn.Embedding(words, width) for _ in range(tables))
        self.numbers, pairs = dense(13, 512, 256, width), (tables + 1) * tables // 2
        self.top = nn.Sequential(dense(width + pairs, 512, 256), nn.Linear(256, 1))
        rows, columns = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, numbers, categories):
        x = self.numbers(numbers)
        all = torch.stack([x, *(table(categories[:, i]) for i, table in enumerate(self.tables))], 1)
        return self.top(torch.cat([x, (all @ all.mT)[:, self.rows, self.columns]], 1)).sigmoid()
