"""The compiled step: forward, backward and update recorded as one graph and compiled as one.

Compiling only the forward pass leaves autograd's bookkeeping and the update apart, and the compiler cannot fuse what
it does not see. Here one call does all of it. The compiler is asked to draw random numbers as eager PyTorch does, so
dropout masks are the same. On a GPU the compiled step is captured as a CUDA graph. PyTorch keeps what was compiled on
disk, for later runs and other processes.
"""

from __future__ import annotations

from paceline.errors import reason
from paceline.step.compiled_phase import CompiledPhase
from paceline.step.equality import compare_first_update
from paceline.step.flat import FlatStep
from paceline.step.graph import GraphStep
from paceline.step.phase import Batch, Outcome
from paceline.step.step import Parts


class CompiledStep(FlatStep):
    """On a CPU, or where the step cannot be captured."""

    kind = "compiled"
    phase_type = CompiledPhase

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        check_first_update(self)


class CapturedCompiledStep(GraphStep):
    """On a GPU: captured, so that launching costs nothing."""

    kind = "compiled"
    phase_type = CompiledPhase

    def _warm_up(self, example: Batch) -> Outcome:
        check_first_update(self)  # before capturing, which keeps the memory of a step for good
        return super()._warm_up(example)


def check_first_update(step: FlatStep) -> None:
    """Refuses a compiled step whose first update is not that of the uncompiled one."""
    difference = compare_first_update(step.parts, step)
    if not difference.excess <= 1.0:
        raise RuntimeError(f"compiled, {difference}")


def check_compiler() -> str | None:
    """Why nothing can be compiled on this machine, or None."""
    from torch._inductor import cpp_builder

    try:
        cpp_builder.get_cpp_compiler()
    except Exception as error:
        return f"no C++ compiler ({reason(error)})"
    return None
