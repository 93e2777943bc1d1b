"""A trial times what a network runs: tracing it returns the family and the sampled sizes."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.cost.families import FAMILIES, Sizes
from paceline.cost.op_classification import classify_op
from paceline.cost.shape_sampling import TRIALS, Limits, sample_shape
from paceline.cost.trials import calls_of

SMALL = Limits(5e6, 2.0**17)


IMAGES = ("convolution", "batch_norm", "max_pool", "average_pool")
CPU = torch.device("cpu")


class _Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[str, Sizes]] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        output = function(*arguments, **(keywords or {}))
        found = classify_op(function.__name__.partition(".")[0], arguments, output)
        if found is not None:
            assert found[2], f"{function} is of no known family"
            self.operations.append((found[0], tuple(map(int, found[1]))))
        return output


@pytest.mark.parametrize("kind", TRIALS)
def test_a_trial_runs_the_operation_it_is_named_for(kind):
    rng = random.Random(1)
    for _ in range(6):
        sizes = sample_shape(kind, rng, SMALL)
        for family, call in calls_of(kind, sizes, torch.device("cpu"), torch.float32).items():
            with _Seen() as seen:
                call()
            found = [s for name, s in seen.operations if name == family]
            other = {name for name, _ in seen.operations}
            assert found, f"{family} of {sizes} ran {other}"
            if kind == "matmul" and 1 in sizes[1:4]:  # a vector looks the same either way
                assert found[0][:4] == sizes[:4]
            else:
                assert found[0] == sizes, f"{family} was drawn as {sizes} and runs as {found[0]}"


@pytest.mark.parametrize("kind", TRIALS)
def test_every_kind_has_a_family_and_a_backward_pass_where_it_needs_one(kind):
    made = calls_of(kind, sample_shape(kind, random.Random(0), SMALL), torch.device("cpu"), torch.float32)
    assert kind in made and set(made) <= set(FAMILIES)


@pytest.mark.parametrize("kind", IMAGES)
def test_images_can_have_the_channels_last(kind):
    rng = random.Random(3)
    for _ in range(6):
        sizes = sample_shape(kind, rng, SMALL)
        if kind == "convolution" and sizes[2] == 1:
            continue  # a sequence
        for family, call in calls_of(kind, sizes, CPU, torch.float32, channels_last=True).items():
            with _Seen() as seen:
                call()
            assert sizes in [found for name, found in seen.operations if name == family]
            if not _is_of_one_layout(call.fresh):
                assert call.fresh.is_contiguous(memory_format=torch.channels_last) or call.fresh.shape[1] == 3


def _is_of_one_layout(images: torch.Tensor) -> bool:
    return images.shape[1] == 1 or images.shape[2] * images.shape[3] == 1


def test_the_first_convolution_reads_samples_as_they_come():
    sizes = (2, 3, 8, 8, 16, 3, 3, 8, 8, 1, 0)
    calls = calls_of("convolution", sizes, CPU, torch.float32, channels_last=True)
    sample = calls["convolution"].fresh
    assert sample.is_contiguous() and not sample.requires_grad
    output, gradient = calls["convolution"].run(), calls["convolution_backward"].fresh
    for images in (output, gradient):
        assert isinstance(images, torch.Tensor) and images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("kind", TRIALS)
def test_what_the_operation_before_wrote_is_an_input(kind):
    """Without its values the operation has another result."""
    sizes = sample_shape(kind, random.Random(2), SMALL)
    for family, call in calls_of(kind, sizes, CPU, torch.float32).items():
        if kind in ("dropout", "cast", "embedding", "recurrent", "softmax") or family == "batch_norm":
            continue  # random, of another tensor, of indices, or not changed by a shift
        with torch.random.fork_rng():
            torch.manual_seed(0)
            before = _numbers(call())
            call.fresh.data.mul_(3.0)
            assert not torch.equal(_numbers(call()), before), family


def _numbers(output: Any) -> torch.Tensor:
    tensors = [output] if isinstance(output, torch.Tensor) else output
    return torch.cat([tensor.detach().clone().flatten() for tensor in tensors])


def test_a_convolution_that_would_end_the_process_is_not_timed():
    sizes = (2, 3, 96, 96, 12, 1, 1, 48, 48, 1, 0)
    with pytest.raises(NotImplementedError, match="beyond its memory"):
        calls_of("convolution", sizes, CPU, torch.float32, channels_last=True)
    assert len(calls_of("convolution", sizes, CPU, torch.float32)) == 3
