"""Predictions of a network that is divided among the devices of a machine: a pipeline, by feature, or sharded."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from paceline.cluster import Device
from paceline.cost.exchange_tracing import LayerExchange, trace_exchanges
from paceline.cost.piece_tracing import PieceShape, trace_pieces
from paceline.cost.prediction import Prediction
from paceline.cost.workload_tracing import data_shape_of
from paceline.errors import NetworkError
from paceline.planning.candidate import Candidate
from paceline.planning.estimate import placement_of
from paceline.planning.machine_options import MachineOption
from paceline.simulation.divided_prediction import DividedPrediction
from paceline.simulation.divided_step import predict_fsdp, predict_tensor
from paceline.simulation.pipeline_prediction import PipelinePrediction
from paceline.simulation.pipeline_stages import predict_stages
from paceline.workload import Workload

Divided = PipelinePrediction | DividedPrediction


class Predict(Protocol):
    def __call__(self, workload: Workload, device: Device, /, *, tensor: int | None = None) -> Prediction:
        """With `tensor`, the plain step of one of this many processes that linear layers are divided among."""


class Divisions:
    def __init__(self, workload: Workload, predict: Predict) -> None:
        self.workload, self._predict = workload, predict
        self._pieces: dict[tuple[int, bool], tuple[PieceShape, ...]] = {}
        """By batch size and whether the network must be cut."""
        self._shares: dict[tuple[int, str, Device, int], Prediction] = {}
        """By batch size, precision, device and number of processes: many machines have the same device."""
        self._exchanges: dict[tuple[int, int], tuple[LayerExchange, ...]] = {}
        """By batch size and number of processes."""
        self._uncut: NetworkError | None = None
        """Why the network cannot be cut, at any batch size."""

    def predict(self, candidate: Candidate, place: MachineOption) -> Divided:
        """`PacelineError` says why the network cannot be divided like this."""
        workload = replace(self.workload, batch=candidate.batch, precision=candidate.precision, accumulate=1)
        placement = placement_of(candidate, place)
        if candidate.pipeline > 1:
            micro = replace(workload, batch=candidate.batch // candidate.microbatches)
            pieces = self.pieces_of(micro.batch)
            return predict_stages(
                workload, self._share(micro, place.device, 1), pieces, placement, stages=candidate.pipeline,
                microbatches=candidate.microbatches, schedule="1f1b",
            )  # fmt: skip
        if candidate.tensor > 1:
            exchanges = self._exchanges_of(workload, candidate.tensor)
            share = self._share(workload, place.device, candidate.tensor)
            return predict_tensor(workload, share, exchanges, placement, tensor=candidate.tensor)
        pieces = self.pieces_of(candidate.batch, cut=False)
        return predict_fsdp(workload, self._share(workload, place.device, 1), pieces, placement)

    def _share(self, workload: Workload, device: Device, tensor: int) -> Prediction:
        key = workload.batch, workload.precision, device, tensor
        if key not in self._shares:
            self._shares[key] = self._predict(workload, device, tensor=tensor)
        return self._shares[key]

    def _exchanges_of(self, workload: Workload, tensor: int) -> tuple[LayerExchange, ...]:
        key = workload.batch, tensor
        if key not in self._exchanges:
            self._exchanges[key] = trace_exchanges(workload, data_shape_of(workload), tensor)
        return self._exchanges[key]

    def pieces_of(self, batch: int, *, cut: bool = True) -> tuple[PieceShape, ...]:
        if cut and self._uncut is not None:
            raise self._uncut
        if (batch, cut) not in self._pieces:
            workload = replace(self.workload, batch=batch, accumulate=1)
            try:
                self._pieces[batch, cut] = trace_pieces(workload, data_shape_of(workload), cut=cut)
            except NetworkError as error:
                self._uncut = error
                raise
        return self._pieces[batch, cut]
