"""Data, networks and losses as users have them, found by `tests.step.user_objects:NAME`."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset, WeightedRandomSampler
from torch.utils.data import Dataset as TorchDataset

_generator = torch.Generator().manual_seed(1)
X = torch.randn(60, 6, generator=_generator)
Y = torch.randint(0, 3, (60,), generator=_generator)
TOKENS = torch.randint(0, 20, (60, 5), generator=_generator)
MASK = torch.ones(60, 5, dtype=torch.int64)


class Rows(TorchDataset):
    """A map-style data set with nothing but the two methods."""

    def __init__(self, first: int = 0, last: int = 50) -> None:
        self.first, self.last = first, last

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return X[self.first + index], int(Y[self.first + index])


class Noisy(Rows):
    """Augments: draws from all three of the generators that people use."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        x, y = super().__getitem__(index)
        return x + torch.rand(()) + np.random.rand() + random.random(), y


class Named(Rows):
    """Hugging Face's style: a dictionary of lists."""

    def __getitem__(self, index: int) -> dict[str, object]:
        at = self.first + index
        return {"input_ids": TOKENS[at].tolist(), "attention_mask": MASK[at].tolist(), "labels": int(Y[at])}


class Ragged(Rows):
    def __getitem__(self, index: int) -> dict[str, object]:
        return {"input_ids": list(range(1 + index % 3)), "labels": 0}


class Endless(IterableDataset):
    def __iter__(self):
        yield X[0], 0


def doubled(items):
    x, y = torch.utils.data.default_collate(items)
    return 2 * x, y


def dictionary(first: int = 0, last: int = 60) -> dict[str, Tensor]:
    piece = slice(first, last)
    return {"input_ids": TOKENS[piece], "attention_mask": MASK[piece], "labels": Y[piece]}


pair_of_datasets = (Rows(0, 50), Rows(50, 60))
pair_of_named = (Named(0, 50), Named(50, 60))
pair_of_tensor_datasets = (TensorDataset(X[:50], Y[:50]), TensorDataset(X[50:], Y[50:]))
one_tensor_dataset = TensorDataset(X, Y)
subset = Subset(TensorDataset(X, Y), list(range(50)))
pair_of_loaders = (DataLoader(Rows(0, 50), batch_size=4, shuffle=True), DataLoader(Rows(50, 60), batch_size=4))
loaders_with_processes = (DataLoader(Rows(0, 50), num_workers=2), DataLoader(Rows(50, 60)))
loaders_with_collate = (
    DataLoader(Rows(0, 50), collate_fn=doubled),
    DataLoader(Rows(50, 60), collate_fn=doubled),
)
weighted_loader = DataLoader(Rows(), sampler=WeightedRandomSampler([1.0] * 50, 50))
arrays = (X.numpy(), Y.numpy())
pair_of_array_pairs = ((X[:50].numpy(), Y[:50].numpy()), (X[50:].numpy(), Y[50:].numpy()))
pair_of_dictionaries = (dictionary(0, 50), dictionary(50, 60))
dataset_dict = {"train": Named(0, 50), "validation": Named(50, 60)}
two_inputs = (TensorDataset(X[:50], TOKENS[:50], Y[:50]), TensorDataset(X[50:], TOKENS[50:], Y[50:]))
no_target = (TensorDataset(X[:50]), TensorDataset(X[50:]))
noisy = (Noisy(0, 50), Noisy(50, 60))
ragged, endless, three = (Ragged(), Ragged()), Endless(), (Rows(), Rows(), Rows())


def classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


class TokenClassifier(nn.Module):
    """Takes keyword arguments and returns scores."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.output = nn.Embedding(20, 4), nn.Linear(4, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        weights = attention_mask.unsqueeze(-1).float()
        return self.output((self.embedding(input_ids) * weights).mean(1))


class WithOutputs(TokenClassifier):
    """As Hugging Face's models: an object with `.logits`, and a `.loss` when labels are given."""

    smoothing = 0.1

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> SimpleNamespace:
        logits = super().forward(input_ids, attention_mask)
        loss = None if labels is None else F.cross_entropy(logits, labels, label_smoothing=self.smoothing)
        return SimpleNamespace(loss=loss, logits=logits)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.rows = nn.Embedding(20, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.rows(x) + self.tokens(tokens).mean(1)


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def smooth(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, label_smoothing=0.2)


def reconstruction(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    (x,) = batch
    return F.mse_loss(model(x), x)


def of_dictionary(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    output = model(batch["input_ids"], batch["attention_mask"])
    return F.cross_entropy(output, batch["labels"]), output


def without_reduction(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="none")


def of_one(output: Tensor) -> Tensor:
    return output.sum()


def groups(named):
    """Weights decay, biases do not, and learn faster."""
    biases = [p for name, p in named.items() if name.endswith("bias")]
    weights = [p for name, p in named.items() if not name.endswith("bias")]
    return torch.optim.AdamW([{"params": weights, "weight_decay": 0.1}, {"params": biases, "lr": 0.05}], lr=0.02)


def groups_and_scheduler(named):
    optimizer = groups(named)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda n: 0.9**n, lambda n: 0.8**n])


def some_parameters(named):
    return torch.optim.SGD(list(named.values())[:1], lr=0.1)


def no_optimizer(named):
    return "adam"


def falling(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


def one_cycle(optimizer, updates_per_epoch, epochs):
    return torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.3, total_steps=updates_per_epoch * epochs, cycle_momentum=False
    )


def cycles_momentum(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=100)


def on_plateau(optimizer):
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)


def share_of_first_class(outputs: Tensor, targets: Tensor) -> float:
    assert len(outputs) == len(targets) == 10
    return float((outputs.argmax(1) == 0).float().mean())


def failing_metric(outputs: Tensor, targets: Tensor) -> float:
    raise KeyError("no")
