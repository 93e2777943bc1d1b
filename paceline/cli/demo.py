"""`paceline demo`: everything once, on bundled data, in about two minutes, with a report."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from paceline import busy_machine
from paceline.api.calibrate import calibrate
from paceline.api.predict import predict
from paceline.api.verify import verify
from paceline.cli.console import JsonOption, console_for, output_json, progress_bar
from paceline.cli.options import OutOption
from paceline.cli.predict import show as show_prediction
from paceline.cli.train import train_run
from paceline.cli.verify import show as show_verification
from paceline.record import dump, save
from paceline.workload import resolve

EXAMPLE = "Example: paceline demo"

NETWORK = "lenet5"
SETTINGS: dict[str, Any] = {"data": "digits", "epochs": 20, "batch": 32}
STRATEGIES = ("sync", "downpour")


def demo(
    out: OutOption = None,
    json: JsonOption = None,
) -> None:
    """Run everything once on bundled data: calibrate, predict, train, measure, distribute, verify, report."""
    from paceline.output_directory import check_new, next_directory
    from paceline.reporting.page import report
    from paceline.step.placement import choose_device

    if out is not None:
        check_new(out)
    console, place = console_for(json), out or next_directory("demo")
    on_cpu = choose_device("auto")[0].type == "cpu"
    timed: dict[str, Any] = {"workload": NETWORK, **SETTINGS} if on_cpu else {}
    also = f", and timing each operation of {NETWORK} alone" if on_cpu else ""
    _step(console, f"1. Calibrating this machine (quick version){also}")
    with progress_bar(console, "calibrating", busy_machine.busy_now()) as watch:
        calibration = calibrate(quick=True, out=place, watch=watch, **timed)
    _step(console, f"2. Predicting {NETWORK} on the bundled digits, before running it")
    prediction = predict(NETWORK, calibration, **SETTINGS)
    show_prediction(prediction, console)
    _step(console, "3. Training it in one process, and measuring every layer")
    workload = resolve(NETWORK, SETTINGS)
    train_run(workload, out=place / "one-process", measure=True, console=console, prediction=prediction)
    for number, strategy in enumerate(STRATEGIES, start=4):
        _step(console, f"{number}. Training it with two workers, strategy {strategy}")
        train_run(workload, strategy=strategy, workers=2, out=place / strategy, console=console)
    _step(console, "6. Was the prediction right?")
    found = verify(place / "one-process")
    show_verification(found, console)
    save(found, place / "verification.json")
    runs = [place / "one-process", *(place / strategy for strategy in STRATEGIES), place / "verification.json"]
    page = report(runs, place / "report.html", title=f"Demo: {NETWORK} on {SETTINGS['data']}").path
    console.print(f"Open {page.resolve()} in a browser.")
    output_json(dump(found), json)


def _step(console: Console, words: str) -> None:
    console.print()
    console.print(words, style="bold")
