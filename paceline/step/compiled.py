"""The compiled step: forward, backward and update written as one function and compiled as one graph.

Compiling only the forward leaves autograd's bookkeeping and many small updates in Python, which is what a
small network spends its time on. Here one call does all of it. The compiler is asked to draw random numbers
as eager PyTorch does, so dropout masks are the same.
"""

from __future__ import annotations

from types import FunctionType

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value

from paceline.errors import reason
from paceline.step.clipping import clip_norm_
from paceline.step.flat import FlatStep
from paceline.step.losses import total_loss
from paceline.step.optimizers import State, update
from paceline.step.phase import Batch, LossPhase, Outcome
from paceline.step.step import Parts, Step
from paceline.step.tally import Tally

Buffers = dict[str, Tensor]


class CompiledStep(FlatStep):
    kind = "compiled"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        whole = _with_own_code(self._whole())
        self.whole = torch.compile(whole, fullgraph=True, dynamic=False, options={"fallback_random": True})

    @staticmethod
    def possible(parts: Parts) -> str | None:
        """Why a workload cannot be compiled as one function, or None when it can."""
        if parts.workload.phases or any(type(phase) is not LossPhase for phase in parts.phases):
            return "it has phases of its own"
        if ":" in parts.workload.loss or parts.workload.loss == "model":
            return f"its loss is {parts.workload.loss}"
        if parts.workload.accumulate > 1:
            return "it accumulates gradients"
        return "its samples have several fields" if parts.dataset.kind == "fields" else None

    def advance(self, count: int, tally: Tally) -> None:
        Step.advance(self, count, tally)

    def take(self, batch: Batch) -> Outcome:
        if len(batch[1]) != self.parts.feeder.order.batch:
            return super().take(batch)  # a smaller last batch is not worth compiling again
        phase = self.phases[0]
        phase.lr.fill_(self.parts.rate(phase.phase, self.epoch, self.next))
        buffers = dict(self.parts.network.named_buffers())
        with torch.no_grad():
            loss, output = self.whole(phase.flat.buffer, phase.state, buffers, phase.lr, *batch)
        return Outcome(loss, (), output)

    def _whole(self) -> FunctionType:
        flat, phase, network = self.phases[0].flat, self.phases[0].phase, self.parts.network
        assert isinstance(phase, LossPhase)
        trained = {id(p): name for name, p in network.named_parameters()}
        names = [trained[id(p)] for p in flat.parameters]
        device = flat.buffer.device.type

        def loss_of(values: tuple[Tensor, ...], buffers: Buffers, x: Tensor, y: Tensor):  # type: ignore[no-untyped-def]
            buffers = {name: buffer.clone() for name, buffer in buffers.items()}
            with torch.autocast(device, torch.bfloat16, enabled=phase.autocast is not None):
                output = functional_call(network, ({**dict(zip(names, values, strict=True)), **buffers}), (x,))
                loss = total_loss(phase.loss, output, y, phase.auxiliary_weight)
            return loss, (output if isinstance(output, Tensor) else output[0], buffers)

        def whole(
            parameters: Tensor, state: State, buffers: Buffers, lr: Tensor, x: Tensor, y: Tensor
        ) -> tuple[Tensor, Tensor]:
            gradients, (loss, (output, changed)) = grad_and_value(loss_of, has_aux=True)(
                tuple(flat.split(parameters)), buffers, x, y
            )
            gradient = torch.cat([g.reshape(-1) for g in gradients])
            if phase.rule.clip_norm:
                clip_norm_([gradient], phase.rule.clip_norm)
            update(phase.rule, parameters, gradient, state, lr)
            for name, buffer in buffers.items():
                buffer.copy_(changed[name])
            return loss, output

        assert isinstance(whole, FunctionType)
        return whole


def _with_own_code(function: FunctionType) -> FunctionType:
    """The same function under a code object of its own: the compiler counts its attempts by code object."""
    code = function.__code__.replace()
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


def check_compiler() -> str | None:
    """Why nothing can be compiled on this machine, or None."""
    from torch._inductor import cpp_builder

    try:
        cpp_builder.get_cpp_compiler()
    except Exception as error:
        return f"no C++ compiler ({reason(error)})"
    return None
