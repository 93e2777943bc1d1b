"""A pipeline trains the same network as one process: same losses, a plain checkpoint, one error when a stage dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.errors import InputError, PacelineError
from paceline.simulation.pipeline_schedule import passes_of
from paceline.training.checkpoint import load_checkpoint
from paceline.training.drivers.model_parallel import stage_processes
from paceline.training.drivers.model_parallel.messages import Ready
from paceline.training.drivers.model_parallel.stage_times import SPANS_KEPT
from paceline.training.run import Run
from paceline.training.watcher import Silent

SMALL = {"data": "digits:640", "batch": 64, "epochs": 2, "seed": 3, "threads": 1, "device": "cpu"}
DNN = SMALL | {"optimizer": "momentum", "lr": 0.05, "options.hidden": [32, 32]}

TEXT = SMALL | {"data": "text:{}", "batch": 8, "dropout": 0.0, "options.width": 16, "options.depth": 2}


def losses(run: Run) -> list[float]:
    return [value for epoch in run.epochs for value in (epoch.loss, epoch.test_loss)]


def test_two_stages_give_the_losses_of_the_whole_network_with_the_same_microbatches() -> None:
    settings = DNN | {"dropout": 0.3, "clip_norm": 0.5, "data": "digits:620"}  # the last batch has 44 samples
    whole = paceline.train("dnn", microbatches=8, **settings)
    halves = paceline.train("dnn", microbatches=8, pipeline=2, **settings)
    assert whole.division.pipeline == 1 and halves.division.pipeline == 2
    assert losses(halves) == pytest.approx(losses(whole), rel=1e-5)
    assert halves.epochs[-1].train_accuracy == whole.epochs[-1].train_accuracy
    assert halves.updates == whole.updates == 20
    first = [span.part for span in halves.trace.spans if span.who == "stage 1" and span.part in ("forward", "backward")]
    assert first[:16] == [direction for direction, _ in passes_of("1f1b", 0, 2, 8)]
    assert sum(span.who == "stage 2" for span in halves.trace.spans) == SPANS_KEPT  # the first, of more than 500
    assert [process.passes for process in halves.division.processes] == [2 * (9 * 8 + 6)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(
    ("network", "settings"),
    [
        ("dnn", DNN | {"dropout": 0.0, "optimizer": "adam", "lr": 0.001, "l1": 1e-4}),
        ("lenet5", SMALL),
        ("resnet20", SMALL | {"data": "synthetic:3x8x8/4:96", "batch": 32}),
        ("transformer", TEXT),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_three_stages_are_like_accumulating_gradients_in_one_process(
    network: str, settings: dict[str, Any], schedule: str, tmp_path: Path
) -> None:
    """Also with batch norm, whose statistics are those of each micro-batch in both."""
    (tmp_path / "text").write_text("the stages of a pipeline pass on what they have computed. " * 60)
    settings = settings | {"data": settings["data"].format(tmp_path / "text")}
    whole = paceline.train(network, accumulate=4, step="plain", **settings)
    thirds = paceline.train(network, microbatches=4, pipeline=3, pipeline_schedule=schedule, **settings)
    assert losses(thirds) == pytest.approx(losses(whole), rel=1e-5)


@pytest.mark.slow
def test_copies_of_a_pipeline_are_like_synchronous_workers() -> None:
    settings = DNN | {"dropout": 0.0, "data": "digits:620"}  # ten batches: with three copies the last round has one
    workers = paceline.train("dnn", workers=3, **settings)
    copies = paceline.train("dnn", workers=3, pipeline=2, microbatches=4, **settings)
    assert copies.updates == workers.updates == 8
    assert losses(copies) == pytest.approx(losses(workers), rel=1e-5)


class InSequence(nn.Module):
    def __init__(self, between: bool = False) -> None:
        super().__init__()
        self.flat = nn.Flatten()
        self.body = nn.Sequential(nn.Linear(64, 24), nn.ReLU(inplace=True), nn.Linear(24, 24), nn.Tanh())
        self.head = nn.Linear(24, 10)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(self.flat(x))
        return self.head(x * 2 if self.between else x)  # type: ignore[no-any-return]


def test_a_module_of_the_user_is_trained_in_place_and_its_checkpoint_is_a_plain_one(tmp_path: Path) -> None:
    model = InSequence()
    place = tmp_path / "run"
    run = paceline.train(model, pipeline=2, cut="body.2", out=place, **SMALL)
    assert run.division.cut == ("flat", "body.2") and run.division.processes[1].layers == ("body.2", "body.3", "head")
    saved = torch.load(place / "checkpoint.pt", weights_only=True)["parameters"]
    InSequence().load_state_dict(saved)
    assert all(torch.equal(saved[name], tensor) for name, tensor in model.state_dict().items())
    assert {process.parameters for process in run.division.processes} == {64 * 24 + 24, 24 * 24 + 24 + 24 * 10 + 10}
    # one process can go on with it, and a pipeline with that
    assert len(paceline.resume(place, model, pipeline=1, epochs=3, **PLAIN).epochs) == 3
    assert load_checkpoint(place).step_kind == "plain"
    assert len(paceline.resume(place, model, pipeline=3, epochs=4, **PLAIN).epochs) == 4


PLAIN = {key: SMALL[key] for key in ("data",)}


def test_a_module_with_work_between_its_layers_is_refused() -> None:
    with pytest.raises(InputError, match=r"head is not called with just the result of body; write it as a sequence"):
        paceline.train(InSequence(between=True), pipeline=2, **SMALL)


class Stops(Silent):
    def advanced(self, progress: object) -> None:
        raise KeyboardInterrupt


@pytest.mark.slow
def test_a_resumed_pipeline_ends_with_the_parameters_of_an_undisturbed_one(tmp_path: Path) -> None:
    settings = DNN | {"dropout": 0.2, "pipeline": 2, "cut": "fc2", "microbatches": 4}
    paceline.train("dnn", out=tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        paceline.train("dnn", out=tmp_path / "stopped", checkpoint_every=0, watcher=Stops(), **settings)
    paceline.resume(tmp_path / "stopped")
    one, other = (load_checkpoint(tmp_path / name) for name in ("whole", "stopped"))
    assert one.updates == other.updates
    assert all(torch.equal(one.parameters[name], other.parameters[name]) for name in one.parameters)


class Signals(Silent):
    """Sends a signal to the second stage when the training has begun."""

    def __init__(self, number: int, made: list[stage_processes.StageProcesses]) -> None:
        self.number, self.made = number, made

    def begun(self, run: Run, notes: list[str]) -> None:
        os.kill(self.made[0].processes[1].process_id, self.number)


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, "stage 2 was ended by SIGKILL"), (signal.SIGSTOP, "stage 2 was stopped for more than 1 s")],
)
def test_a_stage_that_dies_or_hangs_ends_the_run_with_one_error_and_leaves_no_process(
    number: int, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[stage_processes.StageProcesses] = []
    pids: list[int] = []
    start = stage_processes.StageProcesses.start

    def started(self: stage_processes.StageProcesses) -> list[Ready]:
        made.append(self)
        answers = start(self)
        pids.extend(process.process_id for process in self.processes)
        return answers

    monkeypatch.setattr(stage_processes.StageProcesses, "start", started)
    place, options = tmp_path / "run", DNN | {"pipeline": 2, "epochs": 1000, "stopped_timeout": 1.0}
    with pytest.raises(PacelineError, match=rf"{said}.*; continue with: `paceline.resume\('{place}'\)`"):
        paceline.train("dnn", out=place, watcher=Signals(number, made), **options)
    time.sleep(0.1)
    assert pids and not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert paceline.load(place).status == "failed"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"microbatches": 7}, "`microbatches=7` should divide `batch=64`"),
        ({"microbatches": 1}, "are fewer than the 2 stages"),
        ({"strategy": "downpour"}, "leave out `strategy='downpour'`"),
        ({"driver": "virtual"}, "leave out `driver='virtual'`"),
        ({"accumulate": 2}, "leave out `accumulate=2`"),
        ({"precision": "bfloat16"}, "is for float32 and float64"),
        ({"cut": "fc9"}, "no stage can begin with 'fc9'; these can: fc1,"),
        ({"pipeline": 60}, "6 layers, too few for `pipeline=60`"),
        ({"backup_workers": 1}, "`backup_workers` has no effect on a divided network"),
        ({"step": "flat"}, "`step` and `log_placement` are for a network in one process"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_what_a_pipeline_cannot_do_is_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        paceline.train("dnn", **(DNN | {"dropout": 0.0, "pipeline": 2, "microbatches": 64} | settings))
