"""Small networks that a calibration measures as a whole. They cover common layers and resemble no real model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.activation1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.activation2 = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation1(self.norm1(self.conv1(x)))
        return self.activation2(self.norm2(self.conv2(inner)) + x)  # type: ignore[no-any-return]


def residual() -> nn.Module:
    """Narrow convolutions with batch norm, and sums; for samples of 3 x 40 x 40."""
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(inplace=True),
        _Residual(24), nn.MaxPool2d(2), nn.Conv2d(24, 48, 1, bias=False), _Residual(48), _Residual(48),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10),
    )  # fmt: skip


def convolutional() -> nn.Module:
    """Wider convolutions with biases, pooling, and large linear layers; for samples of 3 x 40 x 40."""
    return nn.Sequential(
        nn.Conv2d(3, 48, 5, stride=1, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(48, 96, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(96, 128, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128 * 25, 768), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(768, 10),
    )  # fmt: skip


def perceptron() -> nn.Module:
    """A plain chain with a hand-written gradient; for samples of 3 x 40 x 40."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(4800, 96), nn.Tanh(), nn.Dropout(0.2), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 10),
    )  # fmt: skip


def wide_perceptron() -> nn.Module:
    """A chain whose parameters take longer to update than its samples to multiply; for samples of 3 x 40 x 40."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(4800, 640), nn.ReLU(), nn.Linear(640, 320), nn.ReLU(), nn.Linear(320, 10),
    )  # fmt: skip


class _Attending(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow, self.activation = nn.Linear(width, 3 * width), nn.Linear(3 * width, width), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inputs(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        x = x + self.output(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.narrow(self.activation(self.wide(self.norm2(x))))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Two blocks over the rows of an image; for samples of 3 x 40 x 40."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.first = nn.Linear(120, width)
        self.blocks = nn.Sequential(_Attending(width, 4), _Attending(width, 4))
        self.last = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.transpose(1, 2).flatten(2)
        return self.last(self.blocks(self.first(rows)).mean(1))  # type: ignore[no-any-return]


def attention() -> nn.Module:
    return Attention()


class Recurrent(nn.Module):
    """Reads the rows of an image; for samples of 3 x 40 x 40."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(120, 80, batch_first=True)
        self.last = nn.Linear(80, 10)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x.transpose(1, 2).flatten(2))
        return self.last(states[:, -1])  # type: ignore[no-any-return]


def recurrent() -> nn.Module:
    return Recurrent()


class _Bottleneck(nn.Module):
    def __init__(self, width: int, inner: int, stride: int = 1) -> None:
        super().__init__()
        self.narrow = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True)
        )
        self.spatial = nn.Sequential(
            nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
        )  # fmt: skip
        self.wide = nn.Sequential(nn.Conv2d(inner, 2 * width, 1, bias=False), nn.BatchNorm2d(2 * width))
        self.short = nn.Conv2d(width, 2 * width, 1, stride=stride, bias=False)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.wide(self.spatial(self.narrow(x))) + self.short(x))  # type: ignore[no-any-return]


def bottleneck() -> nn.Module:
    """Convolutions from narrow to wide on feature maps that shrink; for samples of 3 x 144 x 144."""
    return nn.Sequential(
        nn.Conv2d(3, 40, 5, stride=2, padding=2, bias=False), nn.BatchNorm2d(40), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1), _Bottleneck(40, 48), _Bottleneck(80, 96, 2), _Bottleneck(160, 160, 2),
        _Bottleneck(320, 224, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(640, 100),
    )  # fmt: skip


class _Separable(nn.Module):
    """A depthwise convolution between two pointwise ones, with a gate computed from the whole feature map."""

    def __init__(self, width: int, inner: int, size: int, stride: int) -> None:
        super().__init__()
        self.expand, self.norm1 = nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.depthwise = nn.Conv2d(inner, inner, size, stride=stride, padding=size // 2, groups=inner, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.squeeze, self.excite = nn.Conv2d(inner, inner // 4, 1), nn.Conv2d(inner // 4, inner, 1)
        self.project, self.norm3 = nn.Conv2d(inner, 2 * width, 1, bias=False), nn.BatchNorm2d(2 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norm2(self.depthwise(F.silu(self.norm1(self.expand(x))))))
        gate = torch.sigmoid(self.excite(F.silu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return self.norm3(self.project(x * gate))  # type: ignore[no-any-return]


class _LastNorm(nn.Module):
    """A large depthwise convolution, then linear layers over the channels as the last dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(3 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.narrow(F.gelu(self.wide(inner))).permute(0, 3, 1, 2)  # type: ignore[no-any-return]


def separable() -> nn.Module:
    """Depthwise convolutions, gates and norms of the channels; for samples of 3 x 144 x 144."""
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(24), nn.SiLU(inplace=True),
        _Separable(24, 72, 3, 2), _LastNorm(48), _Separable(48, 192, 5, 2), _LastNorm(96), _LastNorm(96),
        _Separable(96, 384, 3, 2), _LastNorm(192), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, 100),
    )  # fmt: skip


def _pointwise_pair(width: int, outputs: int, stride: int) -> list[nn.Module]:
    return [
        nn.Conv2d(width, width, 3, stride=stride, padding=1, groups=width, bias=False), nn.BatchNorm2d(width),
        nn.ReLU6(inplace=True), nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    ]  # fmt: skip


def depthwise() -> nn.Module:
    """Depthwise and pointwise convolutions in turn, grouped ones at the end; for samples of 3 x 144 x 144."""
    return nn.Sequential(
        nn.Conv2d(3, 40, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(40), nn.ReLU6(inplace=True),
        *_pointwise_pair(40, 80, 1), *_pointwise_pair(80, 144, 2), *_pointwise_pair(144, 144, 1),
        *_pointwise_pair(144, 288, 2), nn.Conv2d(288, 288, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(288),
        nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(288, 100),
    )  # fmt: skip


class _Concatenating(nn.Module):
    def __init__(self, width: int, growth: int, layers: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(width + i * growth) for i in range(layers))
        self.convolutions = nn.ModuleList(
            nn.Conv2d(width + i * growth, growth, 3, padding=1, bias=False) for i in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            x = torch.cat([x, convolution(F.relu(norm(x)))], 1)
        return x


def concatenating() -> nn.Module:
    """Layers that see the outputs of all before them; for samples of 3 x 144 x 144."""
    return nn.Sequential(
        nn.Conv2d(3, 48, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(48), nn.ReLU(inplace=True),
        nn.AvgPool2d(2), _Concatenating(48, 24, 5), nn.Conv2d(168, 80, 1, bias=False), nn.AvgPool2d(2),
        _Concatenating(80, 24, 6), nn.BatchNorm2d(224), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(224, 100),
    )  # fmt: skip


class _Encoder(nn.Module):
    """A block over tokens: attention, then two linear layers; causal or not."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output, self.dropout = nn.Linear(width, width), nn.Dropout(0.1)
        self.wide, self.narrow, self.activation = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        q, k, v = (
            linear(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.dropout(self.output(mixed.transpose(1, 2).flatten(2)))
        return x + self.narrow(self.activation(self.wide(self.norm2(x))))  # type: ignore[no-any-return]


class Patches(nn.Module):
    """Attention between the patches of an image; for samples of 3 x 144 x 144."""

    def __init__(self, width: int = 320, patch: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.places = nn.Parameter(torch.zeros(1, (144 // patch) ** 2, width))
        self.blocks = nn.Sequential(*(_Encoder(width, 5, causal=False) for _ in range(3)))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.last(self.norm(self.blocks(tokens)).mean(1))  # type: ignore[no-any-return]


def patches() -> nn.Module:
    return Patches()


class Language(nn.Module):
    """Predicts the next token; its last layer has one output per word."""

    def __init__(self, width: int = 448, words: int = 6000, length: int = 320) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(_Encoder(width, 7, causal=True) for _ in range(3)))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.last(self.norm(self.blocks(self.words(x) + self.places(places))))  # type: ignore[no-any-return]


def language() -> nn.Module:
    return Language()


ROWS, TOKENS = "synthetic:3x40x40/10:2048", "tokens:320/6000:256"
MANY_ROWS = "synthetic:3x40x40/10:8192"
"""Short iterations on a GPU need epochs of many, or the start of an epoch would be timed."""
IMAGES, SMALL_IMAGES = "synthetic:3x144x144/100:512", "synthetic:3x72x72/100:256"
REFERENCES: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
    "cpu": {
        "residual": (ROWS, (8, 32)), "convolutional": (ROWS, (16, 64)), "perceptron": (ROWS, (32, 128)),
        "attention": (ROWS, (8, 32)), "recurrent": (ROWS, (16, 64)), "bottleneck": (SMALL_IMAGES, (2, 8)),
        "separable": (SMALL_IMAGES, (2, 8)), "concatenating": (SMALL_IMAGES, (2, 8)), "patches": (IMAGES, (1, 4)),
        "wide_perceptron": (ROWS, (16, 256)), "depthwise": (SMALL_IMAGES, (4, 16)),
    },
    "cuda": {
        "residual": (ROWS, (32, 256)), "convolutional": (ROWS, (64, 512)), "perceptron": (MANY_ROWS, (64, 256)),
        "attention": (ROWS, (32, 256)), "recurrent": (ROWS, (64, 256)), "bottleneck": (IMAGES, (16, 96)),
        "separable": (IMAGES, (16, 96)), "concatenating": (IMAGES, (16, 96)), "patches": (IMAGES, (16, 96)),
        "language": (TOKENS, (4, 24)),
    },
}  # fmt: skip
"""By device: the data and batch sizes of each network."""
QUICK_REFERENCES = 5
"""A quick calibration measures the first of them."""
