"""A worker's memory is found by a server on the same node, and by nobody else."""

from __future__ import annotations

import pytest
import torch

from paceline.strategy.presets import find_strategy
from paceline.training.drivers.ray.node_memory import ALIGNMENT_BYTES, FETCHED, OfferedMemory, accept_memory
from tests.contract.small_training import workload
from tests.training.drivers.ray.in_process import job_of


@pytest.fixture(scope="module")
def job():
    return job_of(workload(), find_strategy("downpour"), 2)[0]


def test_both_see_what_the_other_wrote_and_parameters_stay_until_the_next_but_one(job):
    offered = OfferedMemory(job)
    mine, its = offered.memory, accept_memory(job, offered.offer)
    mine.payload.fill_(7.0)
    assert its.payload.shape == (job.payload_size,) and (its.payload == 7.0).all()
    values = [torch.full((job.layout.size,), float(number)) for number in range(4)]
    places = [its.put(values[number])[0] for number in range(2)]
    assert its.put(values[3], FETCHED) == (FETCHED, job.layout.size)
    assert [float(mine.parameters[place].mean()) for place in (*places, FETCHED)] == [0.0, 1.0, 3.0]
    assert its.put(values[2][:8]) == (places[0], 8), "a part of the parameters"
    assert float(mine.parameters[places[0], :8].mean()) == 2.0
    assert float(mine.parameters[places[1]].mean()) == 1.0


def test_every_vector_is_aligned_as_pytorch_aligns_its_own(job):
    assert job.layout.size * job.layout.torch_dtype.itemsize % ALIGNMENT_BYTES, "else this proves nothing"
    memory = OfferedMemory(job).memory
    assert [vector.data_ptr() % ALIGNMENT_BYTES for vector in (memory.payload, *memory.parameters)] == [0] * 4


def test_another_file_is_not_accepted(job):
    offered = OfferedMemory(job)
    assert accept_memory(job, offered.offer._replace(name="paceline-other")) is None
    offer = offered.offer
    del offered
    assert accept_memory(job, offer) is None
