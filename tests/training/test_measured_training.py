"""Training with a clock ends with bitwise the same parameters, and tells where its time went."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from paceline.errors import InputError, PacelineError
from paceline.step.build import assemble
from paceline.training import trainer
from paceline.training.checkpoint import load_checkpoint
from paceline.training.measured_training import TrainingClock
from paceline.workload import Workload, resolve
from tests.training.deaths import Death, DiesAfter, parameters, same

SMALL = {"data": "digits:640", "batch": 48, "epochs": 4, "threads": 1, "device": "cpu"}  # 13 full batches and one of 16
WORKLOADS = {
    "dnn, a chain": (resolve("dnn", SMALL | {"dropout": 0.4}), "flat"),
    "dnn, plain": (resolve("dnn", SMALL | {"dropout": 0.4}), "plain"),
    "lenet5": (resolve("lenet5", SMALL), "auto"),
    "resnet20": (resolve("resnet20", SMALL | {"data": "synthetic:3x8x8/4:96", "batch": 16, "epochs": 10}), "auto"),
}


@pytest.mark.parametrize(("workload", "step"), WORKLOADS.values(), ids=WORKLOADS)
def test_the_parameters_are_those_of_a_run_without_the_clock(workload: Workload, step: str, tmp_path):
    bare = trainer.run(workload, step=step, out=tmp_path / "bare")
    clock = TrainingClock()
    measured = trainer.run(workload, step=step, out=tmp_path / "measured", clock=clock)
    assert same(parameters(tmp_path / "bare"), parameters(tmp_path / "measured"))
    assert [epoch.loss for epoch in bare.epochs] == [epoch.loss for epoch in measured.epochs]
    assert bare.step == measured.step
    m = clock.measurement()
    assert sum(m.parts_s.values()) == pytest.approx(m.iteration_s.mean_s, rel=1e-6)
    assert m.sampled >= 20 and m.step == measured.step.kind
    assert sum(layer.parameters for layer in m.layers) == measured.parameters
    assert all(layer.backward_s.median_s > 0 for layer in m.layers if layer.parameters)


def test_the_smaller_last_batch_of_an_epoch_is_trained_but_no_iteration_of_the_measurement():
    clock = TrainingClock()
    run = trainer.run(resolve("mlp", SMALL), clock=clock)
    assert run.updates == 4 * 14
    assert clock.measurement().iterations == 4 * 13


def test_the_losses_are_those_of_the_run():
    clock = TrainingClock()
    run = trainer.run(resolve("mlp", SMALL | {"data": "digits:624", "epochs": 2}), clock=clock)
    kept = {k.number: k.loss for k in clock.measurement().kept}
    last_epoch = [kept[number] for number in range(13, 26)]
    assert sum(last_epoch) / 13 == pytest.approx(run.epochs[-1].loss, rel=1e-5)


def test_nothing_of_the_clock_remains_in_the_network(monkeypatch):
    networks = []
    monkeypatch.setattr(
        trainer, "assemble", lambda *given: networks.append((parts := assemble(*given)).network) or parts
    )
    grad, backward = torch.autograd.grad, torch.autograd.backward
    trainer.run(resolve("lenet5", SMALL), clock=TrainingClock())
    assert torch.autograd.grad is grad and torch.autograd.backward is backward
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in networks[0].modules())


def test_a_run_without_a_clock_imports_nothing_of_measuring_and_sets_no_hook():
    program = (
        "import sys, torch, paceline\n"
        "hooks = []\n"
        "for name in ('register_forward_hook', 'register_forward_pre_hook'):\n"
        "    setattr(torch.nn.Module, name, lambda *given, **named: hooks.append(given))\n"
        "paceline.train(paceline.resolve('lenet5', {'data': 'digits:128', 'epochs': 1, 'threads': 1}))\n"
        "print([name for name in sys.modules if name.startswith('paceline.measurement')], hooks)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


def test_of_a_resumed_run_what_was_left_is_measured(tmp_path):
    workload = resolve("dnn", SMALL | {"epochs": 8})
    trainer.run(workload, out=tmp_path / "bare")
    with pytest.raises(Death):
        trainer.run(workload, out=tmp_path / "killed", watcher=DiesAfter(5), checkpoint_every_s=0.0)
    before = load_checkpoint(tmp_path / "killed")
    assert 0 < before.updates < 8 * 14
    clock = TrainingClock()
    trainer.resume(tmp_path / "killed", clock=clock)
    assert same(parameters(tmp_path / "bare"), parameters(tmp_path / "killed"))
    left = 8 * 14 - before.updates
    assert clock.quarters.planned == clock.quarters.done == left
    full_left = (8 - before.epoch) * 13 - min(13, before.next_step)
    assert clock.measurement().iterations == full_left


def test_the_quarters_are_reached_in_order(tmp_path):
    clock = TrainingClock()
    run = trainer.run(resolve("mlp", SMALL), clock=clock)
    times = [clock.quarters.reached_s[share] for share in (0.25, 0.5, 0.75, 1.0)]
    assert times == sorted(times) and times[-1] == pytest.approx(clock.quarters.training_s)
    assert 0 < clock.quarters.training_s <= run.train_s


def test_too_few_iterations_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="14 iterations are too few to measure: at least 20"):
        trainer.run(resolve("mlp", SMALL | {"epochs": 1}), out=tmp_path / "run", clock=TrainingClock())
    assert not (tmp_path / "run").exists()


@pytest.mark.gpu
@pytest.mark.parametrize("step", ["flat", "graph"])
@pytest.mark.parametrize("network", ["mlp", "lenet5"])
def test_on_a_gpu_the_parameters_are_the_same_too(network, step, tmp_path):
    torch.backends.cudnn.deterministic = True
    workload = resolve(network, {"data": "synthetic:1x28x28:6400", "batch": 64, "epochs": 12, "device": "cuda"})
    trainer.run(workload, step=step, out=tmp_path / "bare")
    clock = TrainingClock()
    trainer.run(workload, step=step, out=tmp_path / "measured", clock=clock)
    assert same(parameters(tmp_path / "bare"), parameters(tmp_path / "measured"))
    assert clock.measurement().step == step and clock.measurement().sampled >= 20


def test_a_clock_that_saw_nothing_says_so(tmp_path):
    with pytest.raises(InputError, match=r"paceline\.train\(workload, measure=clock\)"):
        TrainingClock().measurement()
    workload = resolve("mlp", SMALL | {"epochs": 4})
    clock = TrainingClock()
    with pytest.raises(Death):
        trainer.run(workload, out=tmp_path / "run", watcher=DiesAfter(0), clock=clock)
    with pytest.raises(PacelineError, match="no iteration was sampled"):
        clock.measurement()
