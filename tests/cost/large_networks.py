"""Decoders of seven billion parameters, as users write them: for predictions that must not build them in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY, LENGTH = 32_000, 512


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, length, width)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class PlainDecoder(nn.Module):
    """Plain PyTorch: a list of blocks, weights drawn in a loop, rates of stochastic depth read from a tensor."""

    def __init__(self, depth: int = 34, width: int = 4096, heads: int = 32) -> None:
        super().__init__()
        self.rates = [rate.item() for rate in torch.linspace(0, 0.1, depth)]
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.trunc_normal_(parameter, std=0.02 / math.sqrt(2 * depth) if "down" in name else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


@dataclass
class Config:
    vocab_size: int = VOCABULARY
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 33
    num_attention_heads: int = 32
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    rope_theta: float = 10_000.0


@dataclass
class CausalOutput:
    loss: Tensor | None
    logits: Tensor


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6)).to(x.dtype)


class Rotary(nn.Module):
    """Caches on the CPU, as buffers that are not saved."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.hidden_size // config.num_attention_heads
        inverse = 1.0 / (config.rope_theta ** (torch.arange(0, width, 2, dtype=torch.int64).float().to("cpu") / width))
        places = torch.arange(config.max_position_embeddings, device="cpu").float()
        angles = torch.outer(places, inverse).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * self.cos[: x.shape[-2]] + torch.cat((-second, first), -1) * self.sin[: x.shape[-2]]


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width, self.heads = config.hidden_size, config.num_attention_heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, config.intermediate_size, bias=False) for _ in range(2))
        self.down = nn.Linear(config.intermediate_size, width, bias=False)
        self.norm1, self.norm2, self.rotary = RmsNorm(width), RmsNorm(width), Rotary(config)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        y = self.norm1(x)
        q, k, v = (layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(self.rotary(q), self.rotary(k), v, attn_mask=mask, is_causal=mask is None)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class CausalModel(nn.Module):
    """In the style of Hugging Face: a config, tied weights, buffers, its own loss and an output object."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RmsNorm(config.hidden_size)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.register_buffer("temperature", torch.zeros(1, device="cpu"))
        self.apply(self._init_weights)
        self.lm_head.weight = self.embed_tokens.weight

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            with torch.no_grad():
                module.weight.normal_(0.0, self.config.initializer_range)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None
    ) -> CausalOutput:
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, attention_mask)
        logits = self.lm_head(self.norm(x)).float()
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return CausalOutput(loss, logits)


def hugging_face() -> nn.Module:
    return CausalModel(Config())


class ComputesWithItsWeights(PlainDecoder):
    """Scales a weight by its own norm, which only a real one has."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.scale = 1.0 / float(self.head.weight.norm())


def fifty_gigabytes() -> nn.Module:
    """Few layers, so that it is traced in no time."""
    width = 110_000
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 10))
