"""A network that was measured as a whole, beside the times that its operations take alone."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cost.caches import Costed, displaced_by_iteration, in_caches, slowed_without_code
from paceline.cost.calibration import Calibration, overheads_key
from paceline.cost.iteration import update_alone_s
from paceline.cost.model import CostModel, model_for
from paceline.cost.op_tracing import NetworkShape
from paceline.cost.workload_tracing import DataShape, chain_operations, data_shape_of, is_chain, trace_workload
from paceline.measurement.network_times import NetworkTimes


@dataclass(frozen=True)
class ReferenceRun:
    """A measured network, with the times of its operations alone."""

    times: NetworkTimes
    timed: Sequence[Costed]
    """Its operations, each timed alone."""
    update_s: float
    """The time of the parameter update alone."""
    model: CostModel
    shape: NetworkShape
    data: DataShape
    chain: bool
    """Whether its step has a hand-written gradient."""
    cache_bytes: float = 0.0

    @property
    def slowed(self) -> float:
        """How many times as long what happens once in an iteration takes, because the caches have lost its code."""
        return slowed_without_code(displaced_by_iteration(self.timed, self.cache_bytes), self.cache_bytes)

    @functools.cached_property
    def costed(self) -> Sequence[Costed]:
        """Its operations as a network runs them."""
        return in_caches(self.timed, self.cache_bytes)

    @property
    def busy_s(self) -> float:
        """Time that the device computed."""
        parts = sum(took for part, took in self.times.parts_s.items() if part in ("load", "copy", "update", "loop"))
        return sum(forward + backward for forward, backward in self.times.layers.values()) + parts


def reference_run(calibration: Calibration, times: NetworkTimes) -> tuple[str, ReferenceRun]:
    """The key of the step overheads that a measured network informs, and the network with its operations' times."""
    workload = times.workload
    data = data_shape_of(workload)
    on_gpu = calibration.device == "cuda"
    shape = trace_workload(workload, data, on_gpu=on_gpu)
    chain = times.step in ("flat", "graph") and is_chain(shape, workload)
    operations = chain_operations(shape.operations, on_gpu) if chain else list(shape.operations)
    model = model_for(calibration, workload, shape)
    run = ReferenceRun(
        times, model.timed(operations), update_alone_s(model, shape, times.step, on_gpu), model, shape, data,
        chain, calibration.cache_bytes,
    )  # fmt: skip
    return overheads_key(times.step, chain, times.precision, model.set.threads), run
