"""Data sets, losses, optimizers and metrics given as objects train alike in one process and with workers."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import paceline
from paceline.errors import PacelineError
from tests.step import user_objects as mine

DATA = {
    "pair of data sets": mine.pair_of_datasets,
    "loader": DataLoader(TensorDataset(mine.X, mine.Y)),
    "arrays": (mine.X.numpy(), mine.Y.numpy()),
    "arrays with classes in 32 bits": (mine.X.numpy(), mine.Y.numpy().astype("int32")),
    "list of samples": list(zip(mine.X, mine.Y.tolist(), strict=True)),
    "pair of lists": [list(zip(mine.X, mine.Y, strict=True)), list(zip(mine.X[:20], mine.Y[:20], strict=True))],
}
SETTINGS = {"batch": 10, "epochs": 2, "lr": 0.1, "device": "cpu", "threads": 1}


def network() -> nn.Module:
    torch.manual_seed(0)
    return mine.classifier()


def parts() -> dict[str, object]:
    """None of these can be imported by another process under a name."""
    return {
        "loss": lambda output, target: F.cross_entropy(output, target, label_smoothing=0.1),
        "optimizer": functools.partial(torch.optim.SGD, momentum=0.9),
        "schedule": lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95),
        "metric": lambda outputs, targets: (outputs.argmax(1) == targets).float().mean(),
    }


@pytest.mark.parametrize("given", DATA.values(), ids=DATA)
def test_any_data_can_be_given(given):
    run = paceline.train(network(), data=given, **SETTINGS)
    assert run.status == "finished" and run.classes == 3


def test_a_table_of_pandas_is_refused_with_what_to_give():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(PacelineError, match=r"is a table: give its arrays, as in data=\(table\[inputs\]"):
        paceline.train(network(), data=pandas.DataFrame({"a": [1.0, 2.0], "b": [0, 1]}), **SETTINGS)


def test_a_run_with_accumulated_gradients_can_be_evaluated(tmp_path):
    given = {"data": DATA["arrays"], **SETTINGS, "accumulate": 2}
    run = paceline.train(model := network(), **given, out=tmp_path / "run")
    found = paceline.evaluate(run, DATA["arrays"], model=model)
    assert found.accuracy == pytest.approx(run.test_accuracy)


def test_a_list_of_samples_trains_as_arrays_do():
    runs = [paceline.train(network(), data=DATA[name], **SETTINGS) for name in ("arrays", "list of samples")]
    assert runs[0].test_loss == runs[1].test_loss


def test_a_device_of_pytorch_can_be_given():
    run = paceline.train(network(), data=DATA["arrays"], **SETTINGS | {"device": torch.device("cpu")})
    assert run.workload.device == "cpu"


@pytest.mark.parametrize("place", ["x", "y"])
@pytest.mark.parametrize(
    "form", [lambda x, y: (x, y), lambda x, y: list(zip(x, y, strict=True))], ids=["arrays", "list"]
)
def test_data_that_are_not_finite_are_named_when_the_loss_is_not(place, form):
    x, y = torch.randn(60, 4), torch.randn(60, 1)
    {"x": x, "y": y}[place][42, 0] = torch.nan
    with pytest.raises(
        PacelineError, match=f"the loss became nan in epoch 1.*: {place} of training sample 38 is not finite"
    ):
        paceline.train(nn.Linear(4, 1), data=form(x, y), **SETTINGS, loss="squared")


def test_data_without_a_target_are_named():
    with pytest.raises(PacelineError, match="the data have no target: name a field labels"):
        paceline.train(Named(), data={"values": mine.X}, **SETTINGS)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mine.classifier()

    def forward(self, values):
        return self.inner(values)


def test_parts_of_the_training_can_be_given_and_have_an_effect():
    plain = paceline.train(network(), data=mine.pair_of_datasets, **SETTINGS)
    losses = {plain.test_loss}
    for key, value in parts().items():
        run = paceline.train(network(), data=mine.pair_of_datasets, **SETTINGS, **{key: value})
        if key == "metric":
            assert run.test_loss == plain.test_loss
            assert run.test_metric == pytest.approx(run.test_accuracy)
        else:
            losses.add(run.test_loss)
    assert len(losses) == 4, "loss, optimizer and schedule each change the result"


def test_worker_processes_are_given_the_same_objects():
    alone = paceline.train(network(), data=mine.pair_of_datasets, **SETTINGS, **parts())
    for driver in ("virtual", "local"):
        run = paceline.train(
            network(), data=mine.pair_of_datasets, strategy="sync", workers=1, driver=driver, **SETTINGS, **parts()
        )
        assert run.test_loss == pytest.approx(alone.test_loss, rel=1e-5), driver
        assert run.test_metric == pytest.approx(alone.test_metric), driver


def test_an_optimizer_made_before_is_refused_with_what_to_give():
    model = network()
    with pytest.raises(PacelineError, match="give its class") as raised:
        paceline.train(network(), data=mine.pair_of_datasets, optimizer=torch.optim.SGD(model.parameters()), **SETTINGS)
    assert "\n" not in str(raised.value)
