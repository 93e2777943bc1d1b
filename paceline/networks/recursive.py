"""The recursive network (Goller & Küchler 1996; Socher et al. 2011): one layer composes a tree from its leaves.

A tree is its tokens in the order of a heap, as `data/logic.py` has them: the children of place i are at 2 i + 1 and
2 i + 2, and 0 is an empty place. So a level of all trees in a batch is composed at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from paceline.errors import NetworkError
from paceline.networks.activation import activation_layer
from paceline.networks.autoencoder import principal
from paceline.networks.checks import positive
from paceline.networks.learned import Panel, Scatter


def recursive(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    vocabulary: int = 7,
    hidden: int = 32,
) -> RecursiveNetwork:
    """`vocabulary` counts the tokens, that of empty places included."""
    if len(shape) != 1 or shape[0] & (shape[0] + 1):
        raise NetworkError(f"shape {shape} does not fit 'recursive': a tree has 2^n - 1 places for its tokens")
    levels = shape[0].bit_length()
    return RecursiveNetwork(
        levels, positive("vocabulary", vocabulary), positive("hidden", hidden), classes, activation or "tanh", dropout
    )


class RecursiveNetwork(nn.Module):
    def __init__(
        self, levels: int, vocabulary: int, hidden: int, classes: int, activation: str, dropout: float | None
    ) -> None:
        super().__init__()
        self.levels = levels
        self.embedding = nn.Embedding(vocabulary, hidden, padding_idx=0)
        self.compose = nn.Linear(3 * hidden, hidden)
        self.activation = activation_layer(activation)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.output = nn.Linear(hidden, classes)

    def check_inputs(self, x: Tensor) -> None:
        if x.min() < 0 or x.max() >= self.embedding.num_embeddings:
            raise NetworkError(
                f"its tokens are {int(x.min())} to {int(x.max())}, the network knows 0 to "
                f"{self.embedding.num_embeddings - 1}; set options.vocabulary"
            )

    def forward(self, x: Tensor) -> Tensor:
        """The scores of the classes, from the state of the root."""
        return self.output(self.dropout(self.states(x)[:, 0]))  # type: ignore[no-any-return]

    def learned(self, x: Tensor, y: Tensor) -> Sequence[Panel]:
        """Trees as the network sees them."""
        states = principal(self.states(x)[:, 0], 2)
        return [Scatter("States of test trees, by class", states, y, "first component", "second component")]

    def states(self, x: Tensor) -> Tensor:
        """The root's: [trees, 1, hidden]. An empty place has the state 0."""
        children = None
        for level in reversed(range(self.levels)):
            tokens = x[:, 2**level - 1 : 2 ** (level + 1) - 1]
            inputs = self.embedding(tokens)
            below = inputs.new_zeros(*tokens.shape, 2 * inputs.shape[-1]) if children is None else children.flatten(2)
            states = self.activation(self.compose(torch.cat([inputs, below], dim=-1)))
            states = states * tokens.ne(0).unsqueeze(-1)
            children = states.unflatten(1, (-1, 2)) if level else states
        assert children is not None
        return children  # type: ignore[no-any-return]
