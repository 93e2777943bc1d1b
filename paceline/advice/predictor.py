"""What the cost model predicts for a workload on the hardware at hand; nothing where it knows too little."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.advice.hardware import HardwareOption
from paceline.cluster import Device, find_device
from paceline.cost.predicting import predict
from paceline.cost.prediction import Prediction
from paceline.cost.workload_tracing import DataShape
from paceline.errors import PacelineError
from paceline.workload import Workload

STAND_IN = "EPYC 9004 2 vCPU"
"""A calibrated processor, to order candidates by cost where this machine is not calibrated."""


@dataclass(frozen=True)
class Predictor:
    """Predicts workloads on one kind of data."""

    data: DataShape

    def on(self, workload: Workload, option: HardwareOption) -> Prediction | None:
        """None where the device or an operation of the network is not known."""
        if option.device is None:
            return None
        calibrated_here = option.is_here and option.machine is not None
        return self._predict(workload, None if calibrated_here else option.device)

    def relative_s(self, workload: Workload, option: HardwareOption) -> float | None:
        """Seconds of all epochs, on another processor if the device is not known: enough to compare networks."""
        found = self.on(workload, option) or self._predict(workload, find_device(STAND_IN))
        return None if found is None else found.epoch_s * workload.epochs

    def _predict(self, workload: Workload, device: Device | None) -> Prediction | None:
        try:
            return predict(workload, device, data=self.data)
        except PacelineError:
            return None
