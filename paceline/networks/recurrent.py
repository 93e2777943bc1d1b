"""Long short-term memory (Hochreiter & Schmidhuber 1997) over an image's rows or a text's characters."""

from __future__ import annotations

import torch
from torch import nn

from paceline.errors import NetworkError
from paceline.networks.checks import depth_of, no_activation, positive, text_shape


def lstm(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    hidden: int = 128,
) -> RowLSTM:
    no_activation("lstm", activation)
    if len(shape) not in (2, 3):
        raise NetworkError(
            f"shape {shape} does not fit 'lstm': it reads images ([channels,] height, width) row by row,"
            " so for single rows use mlp or dnn"
        )
    channels = shape[0] if len(shape) == 3 else 1
    return RowLSTM(channels * shape[-1], positive("hidden", hidden), classes, dropout or 0.0)


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


class RowLSTM(nn.Module):
    """Reads an image of H rows in H steps and classifies by the last hidden state."""

    def __init__(self, inputs: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, batch_first=True)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.output = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() == 4:
            x = x.transpose(1, 2).flatten(2)  # one step is one row of all channels
        _, (last, _) = self.lstm(x)
        return self.output(self.dropout(last[-1]))  # type: ignore[no-any-return]


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
