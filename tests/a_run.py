"""A finished run as it could have been, for tests of what is done with records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paceline.step.make import StepChoice
from paceline.trace import Span, Trace
from paceline.training.run import Conditions, Epoch, Run
from paceline.workload import Workload


def a_run(**changes: Any) -> Run:
    run = Run(
        workload=Workload(network="lenet5", data="digits", options={"width": [6, 16]}, epochs=2),
        conditions=Conditions("cpu", "A Processor", 2, 4, "float32", "3.11.0", "2.12.0", "0.1.0", "Linux x86_64"),
        step=StepChoice("flat", "46 updates are too few for compiling to pay"),
        parameters=61_706,
        data="all 1,437 samples on cpu",
        status="finished",
        wall_s=4.5,
        train_s=3.25,
        samples_per_s=1705.4,
        updates=46,
        epochs=(
            Epoch(1, 2.25, 0.125, 0.5, 2.125, 0.25, 0.625, 2.5, 1500.0),
            Epoch(2, 0.75, 0.75, 0.875, 0.625, 0.8125, 1.0, 1.5, 1900.0),
        ),
        test_accuracy=0.8125,
        test_top_accuracy=1.0,
        test_loss=0.625,
        placement={"cpu:0": 48},
        trace=Trace(
            (
                Span("main", "prepare", 0.0, 0.5),
                Span("main", "checkpoint", 0.5, 0.75),
                Span("main", "checkpoint", 2.0, 2.25),
                Span("main", "train", 1.0, 3.0, "epoch 1"),
                Span("main", "validate", 3.0, 4.0, "epoch 1"),
            )
        ),
    )
    return replace(run, **changes)
