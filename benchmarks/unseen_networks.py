"""Networks as users bring them, written for the benchmark of predictions; nothing is fitted to them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Inverted(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        inner = inputs * expand
        layers: list[nn.Module] = []
        if expand != 1:
            layers += [nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(inplace=True)]
        layers += [
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner),
            nn.ReLU6(inplace=True), nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        ]  # fmt: skip
        self.inner, self.residual = nn.Sequential(*layers), stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x) if self.residual else self.inner(x)  # type: ignore[no-any-return]


def mobilenet() -> nn.Module:
    """MobileNetV2, for samples of 3 x 224 x 224."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)]
    width = 32
    for expand, outputs, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for number in range(count):
            layers.append(_Inverted(width, outputs, stride if not number else 1, expand))
            width = outputs
    layers += [nn.Conv2d(width, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))


class _DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))
        return torch.cat([x, inner], 1)


def densenet() -> nn.Module:
    """DenseNet-121, for samples of 3 x 224 x 224."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    width = 64
    for block, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            layers.append(_DenseLayer(width, 32))
            width += 32
        if block < 3:
            layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.Conv2d(width, width // 2, 1, bias=False)]
            layers.append(nn.AvgPool2d(2))
            width //= 2
    layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(width, 1000))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = (
            part.view(n, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.ln1(x)).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.drop(self.proj(mixed.transpose(1, 2).reshape(n, length, width)))
        return x + self.drop(self.mlp(self.ln2(x)))  # type: ignore[no-any-return]


class ViT(nn.Module):
    def __init__(self, width: int = 384, heads: int = 6, depth: int = 12, patch: int = 16) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.token, self.position = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.Sequential(*(_Block(width, heads, False, 0.0) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])  # type: ignore[no-any-return]


def vit() -> nn.Module:
    """ViT-S/16, for samples of 3 x 224 x 224."""
    return ViT()


class _ConvNextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(inner)))).permute(0, 3, 1, 2)  # type: ignore[no-any-return]


class _ChannelNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)  # type: ignore[no-any-return]


def convnext() -> nn.Module:
    """ConvNeXt-T, for samples of 3 x 224 x 224."""
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), _ChannelNorm(96)]
    widths = (96, 192, 384, 768)
    for stage, depth in enumerate((3, 3, 9, 3)):
        layers += [_ConvNextBlock(widths[stage]) for _ in range(depth)]
        if stage < 3:
            layers += [_ChannelNorm(widths[stage]), nn.Conv2d(widths[stage], widths[stage + 1], 2, 2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768), nn.Linear(768, 1000))


class GPT(nn.Module):
    def __init__(
        self, width: int = 768, heads: int = 12, depth: int = 8, words: int = 32000, length: int = 512
    ) -> None:
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(words, width), nn.Embedding(length, width), nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(_Block(width, heads, True, 0.1) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[1], device=x.device)
        x = self.drop(self.wte(x) + self.wpe(place))
        return self.head(self.norm(self.blocks(x)))  # type: ignore[no-any-return]


def gpt() -> nn.Module:
    """A decoder like GPT-2, for sequences of 512 of 32,000 words."""
    return GPT()


class UNet(nn.Module):
    """An encoder and a decoder with transposed convolutions and skip connections, ending in one label an image."""

    def __init__(self, widths: tuple[int, ...] = (48, 96, 192, 384)) -> None:
        super().__init__()
        down, up, join = [], [], []
        inputs = 3
        for width in widths:
            down.append(self._pair(inputs, width))
            inputs = width
        for wide, narrow in zip(widths[:0:-1], widths[-2::-1], strict=True):
            up.append(nn.ConvTranspose2d(wide, narrow, 2, 2))
            join.append(self._pair(2 * narrow, narrow))
        self.down, self.up, self.join = nn.ModuleList(down), nn.ModuleList(up), nn.ModuleList(join)
        self.head = nn.Conv2d(widths[0], 100, 1)

    @staticmethod
    def _pair(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.LeakyReLU(0.1),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.LeakyReLU(0.1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for number, block in enumerate(self.down):
            x = block(x if not number else F.max_pool2d(x, 2))
            kept.append(x)
        for up, join, skip in zip(self.up, self.join, kept[-2::-1], strict=True):
            x = join(torch.cat([up(x), skip], 1))
        return self.head(x).mean((2, 3))  # type: ignore[no-any-return]


def unet() -> nn.Module:
    """For samples of 3 x 96 x 96."""
    return UNet()


class _Gated(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.filter = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.filter(x).chunk(2, 1)
        return x + self.mix(torch.tanh(a) * torch.sigmoid(b))  # type: ignore[no-any-return]


class WaveNet(nn.Module):
    def __init__(self, width: int = 128, depth: int = 10, words: int = 256) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(_Gated(width, 1 << (number % 5)) for number in range(depth)))
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.blocks(self.embed(x).transpose(1, 2))
        return self.head(F.relu(inner).transpose(1, 2))  # type: ignore[no-any-return]


def wavenet() -> nn.Module:
    """Gated convolutions over sequences of 256 symbols."""
    return WaveNet()


class _SwiGlu(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(x)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner))  # type: ignore[no-any-return]


def wide_mlp() -> nn.Module:
    """Residual gated layers on flat samples of 3 x 32 x 32."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 1024), *(_SwiGlu(1024) for _ in range(6)), nn.Linear(1024, 10))
