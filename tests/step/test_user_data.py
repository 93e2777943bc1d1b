"""Every kind of data and loss that users bring trains exactly as a loop written by hand with plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from paceline import data
from paceline.errors import DataError, NetworkError, WorkloadError
from paceline.step.build import assemble, load_data
from paceline.step.step import Parts
from paceline.step.tally import Tally
from paceline.training.step_choice import choose_step
from paceline.training.trainer import run
from paceline.workload import Workload
from tests.step import user_objects as mine

HERE = "tests.step.user_objects"
CPU = torch.device("cpu")


def workload_of(network: str, source: str, **settings: Any) -> Workload:
    given = {"batch": 8, "epochs": 2, "lr": 0.1, "device": "cpu", **settings}
    if ":" in given.get("loss", ""):
        given["loss"] = f"{HERE}{given['loss']}" if given["loss"].startswith(":") else given["loss"]
    return Workload(network=f"{HERE}:{network}", data=f"{HERE}:{source}", **given)


def assembled(workload: Workload) -> Parts:
    return assemble(workload, load_data(workload), CPU)


def paceline_losses(workload: Workload, kind: str = "plain") -> tuple[list[float], torch.Tensor]:
    """The loss of every step, and the trained parameters."""
    parts = assembled(workload)
    step, _ = choose_step(parts, kind)
    losses = []
    for epoch in range(workload.epochs):
        step.begin(epoch)
        for _ in range(parts.updates_per_epoch):
            tally = Tally(5)
            step.advance(1, tally)
            losses.append(tally.read().loss)
    return losses, torch.cat([p.detach().flatten() for p in parts.network.parameters()])


def hand_written(
    workload: Workload, dataset: Any, loss_of: Callable[..., Any], collate: Any = None, make: Any = torch.optim.SGD
) -> tuple[list[float], torch.Tensor]:
    """A loop with a DataLoader, as people write it; only initial weights and the order of samples are Paceline's."""
    parts = assembled(workload)
    network, order = parts.network, parts.feeder.order
    optimizer = make(network.parameters(), lr=workload.lr)
    losses = []
    for epoch in range(workload.epochs):
        batches = [indices.tolist() for indices in order.epoch(epoch)]
        for number, batch in enumerate(DataLoader(dataset, batch_sampler=batches, collate_fn=collate)):
            parts.seed(epoch, number)
            loss = loss_of(network, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, torch.cat([p.detach().flatten() for p in network.parameters()])


def of_pair(network, batch):
    x, y = batch
    return F.cross_entropy(network(x), y)


def of_named(network, batch):
    output = network(batch["input_ids"], batch["attention_mask"])
    return F.cross_entropy(output, batch["labels"])


TRAIN = TensorDataset(mine.X[:50], mine.Y[:50])
NAMED = mine.Named(0, 50)


class NamedTensors(mine.Named):
    def __getitem__(self, index):
        return {key: torch.tensor(value) for key, value in super().__getitem__(index).items()}


PAIRS = [
    "pair_of_datasets", "pair_of_tensor_datasets", "pair_of_loaders", "loaders_with_processes", "pair_of_array_pairs",
]  # fmt: skip


def same(found: tuple[list[float], torch.Tensor], expected: tuple[list[float], torch.Tensor]) -> None:
    assert found[0] == expected[0]
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("source", PAIRS)
def test_pairs_of_x_and_y_train_as_by_hand(source: str):
    workload = workload_of("classifier", source)
    same(paceline_losses(workload), hand_written(workload, TRAIN, of_pair))
    losses, _ = paceline_losses(workload, "auto")
    assert losses == pytest.approx(hand_written(workload, TRAIN, of_pair)[0], rel=1e-5)


@pytest.mark.parametrize("source", ["pair_of_named", "pair_of_dictionaries", "dataset_dict"])
@pytest.mark.parametrize("kind", ["plain", "flat"])
def test_dictionaries_are_keyword_arguments(source: str, kind: str):
    workload = workload_of("TokenClassifier", source)
    expected = hand_written(workload, NamedTensors(0, 50), of_named)
    same(paceline_losses(workload, kind), expected)


def test_a_model_that_returns_its_own_loss_is_trained_on_that():
    def of_model(network, batch):
        return network(**batch).loss

    for loss in ("cross-entropy", "model"):
        workload = workload_of("WithOutputs", "pair_of_named", loss=loss)
        same(paceline_losses(workload), hand_written(workload, NamedTensors(0, 50), of_model))
    assert run(workload).test_accuracy > 0


def test_another_loss_takes_the_logits_of_such_a_model():
    def squared(network, batch):
        logits = network(batch["input_ids"], batch["attention_mask"]).logits
        return F.mse_loss(logits, F.one_hot(batch["labels"], 3).float())

    workload = workload_of("WithOutputs", "pair_of_named", loss="squared")
    same(paceline_losses(workload), hand_written(workload, NamedTensors(0, 50), squared))


def test_several_inputs_are_given_in_their_order():
    workload = workload_of("TwoInputs", "two_inputs")
    expected = hand_written(
        workload, mine.two_inputs[0], lambda network, batch: F.cross_entropy(network(*batch[:2]), batch[2])
    )
    same(paceline_losses(workload), expected)


def test_the_collate_function_of_a_loader_is_used():
    workload = workload_of("classifier", "loaders_with_collate")
    same(paceline_losses(workload), hand_written(workload, mine.Rows(0, 50), of_pair, collate=mine.doubled))


@pytest.mark.parametrize("kind", ["plain", "flat"])
def test_an_own_loss_of_output_and_target(kind: str):
    workload = workload_of("classifier", "pair_of_datasets", loss=":smooth")
    expected = hand_written(workload, TRAIN, lambda network, batch: mine.smooth(network(batch[0]), batch[1]))
    same(paceline_losses(workload, kind), expected)
    assert run(workload).test_accuracy > 0


def test_a_loss_class_of_pytorch():
    workload = workload_of("classifier", "pair_of_datasets", loss="torch.nn:MultiMarginLoss")
    expected = hand_written(workload, TRAIN, lambda network, batch: F.multi_margin_loss(network(batch[0]), batch[1]))
    same(paceline_losses(workload), expected)


def test_an_own_loss_of_model_and_batch():
    workload = workload_of("Autoencoder", "no_target", loss=":reconstruction")
    same(paceline_losses(workload), hand_written(workload, mine.no_target[0], mine.reconstruction))
    assert run(workload).test_accuracy != run(workload).test_accuracy, "nothing is classified"
    workload = workload_of("TokenClassifier", "pair_of_named", loss=":of_dictionary")
    same(paceline_losses(workload), hand_written(workload, NamedTensors(0, 50), of_named))
    assert run(workload).test_accuracy > 0


@pytest.mark.parametrize("source", ["one_tensor_dataset", "arrays"])
def test_every_tenth_sample_of_a_single_part_is_for_testing(source: str):
    made = data.load(f"{HERE}:{source}")
    assert (len(made.train), len(made.test)) == (54, 6)
    assert torch.equal(made.test.x, mine.X[9::10]) and torch.equal(made.test.y, mine.Y[9::10])
    assert len(made.classes) == 3


def test_a_subset_is_a_part():
    made = data.load(f"{HERE}:subset")
    assert len(made.train) == 45 and len(made.test) == 5
    assert len(data.load(f"{HERE}:pair_of_datasets:20").train) == 20


def test_random_augmentations_follow_from_the_seed_and_leave_the_training_alone():
    part = data.load(f"{HERE}:noisy").train
    chosen = torch.tensor([3, 1])
    before = torch.random.get_rng_state()
    one, other = part.read(chosen, epoch=0, seed=5)[0], part.read(chosen, epoch=0, seed=5)[0]
    assert torch.equal(one, other) and torch.equal(before, torch.random.get_rng_state())
    assert not torch.equal(one, part.read(chosen, epoch=1, seed=5)[0])
    assert not torch.equal(one, part.read(chosen, epoch=0, seed=6)[0])
    workload = workload_of("classifier", "noisy")
    same(paceline_losses(workload), paceline_losses(workload))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("three", "is of type tuple of 3 .*; it should be a torch Dataset or DataLoader, a list"),
        ("endless", "IterableDataset"),
        ("weighted_loader", "custom sampler"),
        ("ragged", "'input_ids' differ in shape; pad them"),
        ("smooth", "failed: TypeError"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(source: str, said: str):
    with pytest.raises(DataError, match=said) as raised:
        load_data(workload_of("classifier", source))
        assembled(workload_of("classifier", source))
    assert "\n" not in str(raised.value)


def test_losses_that_are_none_are_refused():
    for loss, said in ((":without_reduction", "tensor of shape"), (":of_one", "should take"), (":X", "is a Tensor")):
        with pytest.raises((WorkloadError, NetworkError), match=said):
            choose_step(assembled(workload_of("classifier", "pair_of_datasets", loss=loss)), "auto")
    with pytest.raises(NetworkError, match=r"without \.loss"):
        choose_step(assembled(workload_of("classifier", "pair_of_datasets", loss="model")), "auto")
    with pytest.raises(NetworkError, match="takes one tensor per sample"):
        assembled(Workload(network="mlp", data=f"{HERE}:pair_of_named", batch=8))
