"""Recurrent networks over an image's rows or a text's characters.

The simple one (Elman 1990), long short-term memory (Hochreiter & Schmidhuber 1997) and gated units (Cho et al. 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from paceline.errors import NetworkError
from paceline.networks.checks import depth_of, no_activation, positive, text_shape
from paceline.networks.learned import Curves, Panel


def rnn(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    hidden: int = 128,
    depth: int = 1,
) -> RowReader:
    if activation not in (None, "tanh", "relu"):
        raise NetworkError(f"activation {activation!r} cannot be set for 'rnn': use tanh or relu")
    return _row_reader("rnn", nn.RNN, shape, classes, dropout, hidden, depth, nonlinearity=activation or "tanh")


def gru(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    hidden: int = 128,
    depth: int = 1,
) -> RowReader:
    no_activation("gru", activation)
    return _row_reader("gru", nn.GRU, shape, classes, dropout, hidden, depth)


def lstm(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    hidden: int = 128,
    depth: int = 1,
) -> RowReader:
    no_activation("lstm", activation)
    return _row_reader("lstm", nn.LSTM, shape, classes, dropout, hidden, depth)


def _row_reader(
    name: str,
    cell: type[nn.RNN] | type[nn.GRU] | type[nn.LSTM],
    shape: tuple[int, ...],
    classes: int,
    dropout: float | None,
    hidden: int,
    depth: int,
    **options: Any,
) -> RowReader:
    if len(shape) not in (2, 3):
        raise NetworkError(
            f"shape {shape} does not fit {name!r}: it reads images ([channels,] height, width) row by row,"
            " so for single rows use mlp or dnn"
        )
    inputs = (shape[0] if len(shape) == 3 else 1) * shape[-1]
    layer = cell(inputs, positive("hidden", hidden), num_layers=depth_of(depth), batch_first=True, **options)
    return RowReader(name, layer, classes, dropout or 0.0)


def textlstm(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    embedding: int = 64,
    hidden: int = 256,
    depth: int = 1,
) -> TextLSTM:
    no_activation("textlstm", activation)
    text_shape("textlstm", shape)
    return TextLSTM(
        classes,
        positive("embedding", embedding),
        positive("hidden", hidden),
        depth_of(depth),
        dropout or 0.0,
    )


class RowReader(nn.Module):
    """Reads an image of H rows in H steps and classifies by the last hidden state."""

    def __init__(self, name: str, layer: nn.RNNBase, classes: int, dropout: float) -> None:
        super().__init__()
        self.name = name
        self.add_module(name, layer)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.output = nn.Linear(layer.hidden_size, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() == 4:
            x = x.transpose(1, 2).flatten(2)  # one step is one row of all channels
        _, last = getattr(self, self.name)(x)
        last = last[0] if isinstance(last, tuple) else last  # an LSTM has a cell state too
        return self.output(self.dropout(last[-1]))  # type: ignore[no-any-return]

    def learned(self, x: torch.Tensor, y: torch.Tensor) -> Sequence[Panel]:
        """How much it has understood after each row."""
        states, _ = getattr(self, self.name)(x.transpose(1, 2).flatten(2) if x.dim() == 4 else x)
        right = self.output(states).argmax(-1).eq(y.unsqueeze(1)).float().mean(0)
        rows = torch.arange(1, len(right) + 1)
        line = torch.stack([rows, 100 * right.cpu()], dim=1)
        return [Curves("Test samples recognised, %", {self.name: line}, "rows read")]


class TextLSTM(nn.Module):
    """Logits of the next character after each character: [batch, time] -> [batch, time, vocabulary]."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=depth, batch_first=True)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.output = nn.Linear(hidden, vocabulary)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(x))
        return self.output(self.dropout(states))  # type: ignore[no-any-return]
