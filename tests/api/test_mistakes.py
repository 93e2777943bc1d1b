"""What a stranger gets wrong ends in one line that says what to do, whatever the function."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import paceline as public
from paceline.errors import PacelineError


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        raise ValueError("broken\nlayer")


MISTAKES = [
    ("measure", ("mpl",), {}, "no network 'mpl': did you mean mlp"),
    ("measure", ("mlp",), {"iterations": 3}, "iterations=3"),
    ("measure", ("mlp",), {"iterations": "x"}, "iterations='x' should be a whole number"),
    ("measure", ("mlp",), {"batc": 3}, "no setting 'batc': did you mean batch"),
    ("measure", ("mlp",), {"device": "tpu"}, "device"),
    ("measure", (Broken(),), {"data": "digits"}, "ValueError: broken"),
    ("measure_links", ("tpu",), {}, "device='tpu' is not one of auto, cpu, cuda, cuda:N"),
    ("calibrate", ("tpu",), {}, "device='tpu' is not one of auto, cpu, cuda, cuda:N"),
    ("calibrate", ("cpu",), {"precision": "float8"}, "precision 'float8' cannot be calibrated"),
    ("calibrate", ("cpu",), {"seed": -1}, "seed=-1 should be at least 0"),
    ("predict", ("mlp", "H2000"), {}, "no device 'H2000': did you mean"),
    ("predict", ("mlp", 3), {}, "device=3 should be a name in the catalogue"),
    ("predict", ("mlp", "no.json"), {}, "no.json"),
    ("predict", (Broken(), "H200"), {"data": "digits"}, "broken"),
    ("simulate", ("mlp",), {}, "name a strategy to simulate"),
    ("simulate", ("mlp",), {"workers": []}, "workers=[] should have at least one number"),
    ("simulate", ("mlp",), {"workers": [2, 3]}, "several numbers need a `cluster`"),
    ("simulate", ("mlp",), {"workers": 2, "steps": "x"}, "steps='x' should be a whole number"),
    ("simulate", ("mlp",), {"workers": 2, "cluster": "nowhere"}, "nowhere"),
    ("simulate", ("mlp",), {"workers": 2, "cluster": 4}, "cluster=4 should be a cluster.toml"),
    ("plan", ("mlp", 3), {}, "cluster=3 should be a cluster.toml"),
    ("plan", ("mlp",), {"deadline": "soon"}, "`deadline='soon'` should be a time with a unit"),
    ("plan", ("mlp",), {"epochs": "x"}, "epochs='x' should be a number"),
    ("plan", ("mlp",), {"budget": [1]}, "budget=[1] should be a number"),
    ("plan", ("mlp",), {"strategies": 3}, "strategies=3 should be comma-separated names or a list"),
    ("LayerClock", ("mlp",), {}, "model='mlp' should be an nn.Module"),
    ("train", (nn.Linear(3, 2),), {}, "Linear needs data: pass data=, e.g. data='digits'"),
    ("train", (nn.Linear(9, 10),), {"data": "digits"}, "Linear does not take digits's samples"),
    ("train", ("mlp",), {"data": "table.csv"}, "did you mean csv:table.csv?"),
    ("train", ("mlp",), {"data": (torch.zeros(0, 3), torch.zeros(0).long())}, "data 'Tensor' has no samples"),
    ("train", ("mlp",), {"data": "digits", "precision": torch.int8}, "precision 'int8' is unknown"),
    ("verify", ("nowhere",), {}, "nowhere: no such directory"),
    ("verify", (3, "nowhere"), {}, "prediction=3 should be a prediction or a plan"),
    ("verify", (3,), {}, "give measured="),
    ("compare", (3,), {}, "experiment=3 should be a TOML file, a dictionary or an Experiment"),
    ("compare", ({"grid": {"lrr": [1]}},), {}, "lrr"),
    ("compare", (), {}, "name the TOML file of an experiment"),
    ("reproduce", ("elgat",), {}, "no study 'elgat': did you mean elgato"),
    ("reproduce", (3,), {}, "study=3 should be a name"),
    ("report", (3,), {}, "paths=3 should be a path"),
    ("report", (".",), {"price": "x"}, "price='x' should be a number"),
    ("load", (3,), {}, "path=3 should be the file or directory of a record"),
    ("load", ("nowhere",), {}, "no record at nowhere"),
    ("collect", (3,), {}, "3 should be a directory or a file"),
    ("evaluate", (3,), {}, "run=3 should be a path"),
    ("resume", ("nowhere",), {}, "no such directory"),
    ("resume", ("nowhere",), {"epoch": 3}, "no setting 'epoch': did you mean epochs"),
    ("resolve", (3,), {}, "resolve takes a name and a dictionary of settings"),
    ("find_strategy", (3,), {}, "strategy=3 should be a name"),
    ("replay", ("nowhere",), {}, "nowhere has no events.json"),
    ("load_dataset", (lambda: 3,), {}, "int"),
    ("datasets", (3,), {}, "data_dir=3 should be a path"),
]


@pytest.mark.parametrize(("name", "given", "named", "words"), MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(name, given, named, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PacelineError) as raised:
        getattr(public, name)(*given, **named)
    said = str(raised.value)
    assert words in said and "\n" not in said and len(said) < 300
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_evaluated_by_its_directory():
    run = public.train("mlp", data="digits", epochs=1)
    with pytest.raises(PacelineError, match="the run was not saved: train it with `out`"):
        public.evaluate(run)


def test_ones_own_prediction_is_kept_and_verified(tmp_path):
    predicted = public.predict("mlp", "H200", data="digits", out=tmp_path / "mine")
    assert public.load(tmp_path / "mine") == predicted
    found = public.measure("mlp", data="digits", iterations=20, out=tmp_path / "measured")
    made = public.verify(tmp_path / "mine", tmp_path / "measured")
    assert made.prediction == predicted and made.saved
    assert made.rows[0].measured_s == found.iteration_s.median_s
    assert public.verify(predicted, found).rows == made.rows


def test_the_command_line_keeps_and_verifies_it_too(paceline, tmp_path):
    kept = paceline("predict", "mlp", "--data", "digits", "--device", "H200", "--out", "mine")
    assert kept.code == 0 and "saved to mine/prediction.json" in kept.out, kept.err
    assert paceline("measure", "mlp", "--data", "digits", "--iterations", "20", "--out", "measured").code == 0
    told = paceline("verify", "measured", "--prediction", "mine", "--json", "-")
    assert told.code == 0 and told.json["prediction"]["device"].startswith("H200"), told.err


def test_names_of_strategies_are_checked_before_anything_is_predicted(monkeypatch):
    monkeypatch.setattr("paceline.planning.planning.make_plan", lambda *_, **__: pytest.fail("it was planned"))
    with pytest.raises(PacelineError, match="no strategy 'synk': did you mean sync"):
        public.plan("mlp", "g5.xlarge", data="digits", strategies="synk")


def test_a_dtype_is_a_precision():
    run = public.train("mlp", data="digits", epochs=1, precision=torch.bfloat16)
    assert run.workload.precision == "bfloat16"


def test_objects_are_called_by_their_type_in_errors_records_and_pages(tmp_path):
    data = torch.utils.data.TensorDataset(torch.randn(60, 4), torch.randint(3, (60,)))
    run = public.train(nn.Linear(4, 3), data=(data, data), epochs=1, batch=16, out=tmp_path / "run")
    assert str(run).startswith("Run: network Linear, data TensorDataset, status finished")
    page = (tmp_path / "run" / "summary.html").read_text()
    assert "Linear reached" in page and "object:Linear" not in page and "object:TensorDataset" not in page


def test_a_custom_loss_that_fails_is_not_told_to_be_another_one():
    images = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randint(3, (32, 2)))
    with pytest.raises(PacelineError, match=r"fails on the first batch of .*: ZeroDivisionError: division by zero$"):
        public.train(nn.Linear(4, 3), data=(images, images), epochs=1, batch=16, loss=lambda output, target: 1 / 0)


def test_a_lazy_layer_needs_its_shape_first():
    with pytest.raises(PacelineError, match="Sequential has lazy layers without a shape: call it on a sample once"):
        public.train(nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), data="digits", epochs=1)
