"""The prediction of a pipeline: stages add up to the network, the bubble to the schedule's, memory goes down."""

from __future__ import annotations

import pytest

import paceline
from paceline.errors import InputError

DATA = {"data": "synthetic:3x64x64/10:1000", "batch": 64}


def test_stages_add_up_to_the_network_and_wait_as_the_schedule_says() -> None:
    micro = paceline.predict("vgg11", "H200", step="plain", **(DATA | {"batch": 8}))
    made = paceline.predict_pipeline("vgg11", "H200", pipeline=4, microbatches=8, link="NVLink 4", **DATA)
    assert [layer for stage in made.stages for layer in stage.layers] == [
        layer.name for layer in micro.layers if layer.kind not in ("Sequential", "outside")
    ]
    assert sum(s.forward_s for s in made.stages) == pytest.approx(micro.parts_s["forward"], rel=0.02)
    assert sum(s.backward_s for s in made.stages) == pytest.approx(micro.parts_s["backward"], rel=0.02)
    assert sum(s.parameter_bytes for s in made.stages) == micro.parameter_bytes
    slowest = max(s.forward_s + s.backward_s for s in made.stages)
    assert made.passes_s > 8 * slowest and made.step_s > made.passes_s
    assert 3 / 11 <= made.idle_share < 0.6  # equal stages would idle for 3/11, and these are not equal
    assert made.samples_per_s == pytest.approx(64 / made.step_s)
    assert made.epoch_s == pytest.approx(16 * made.step_s)
    assert made.low_s < made.step_s < made.high_s
    busy = [span for span in made.trace.spans if span.who == "stage 1"]
    assert len(busy) == 16 and sum(s.duration_s for s in busy) == pytest.approx(
        8 * (made.stages[0].forward_s + made.stages[0].backward_s)
    )


def test_each_stage_needs_less_memory_than_the_network_and_1f1b_less_than_gpipe() -> None:
    settings = DATA | {"batch": 256}
    whole = paceline.predict("vgg11", "H200", step="plain", **settings)
    found = {
        schedule: paceline.predict_pipeline(
            "vgg11", "H200", pipeline=2, microbatches=16, pipeline_schedule=schedule, link="NVLink 4", **settings
        ).memory_bytes
        for schedule in ("1f1b", "gpipe")
    }
    assert found["1f1b"] < found["gpipe"] and found["1f1b"] < whole.memory_bytes


def test_a_slower_link_and_copies_take_longer() -> None:
    def step_s(**more: object) -> float:
        return paceline.predict_pipeline("vgg11", "H200", microbatches=8, **(DATA | more)).step_s  # type: ignore[arg-type]

    fast, slow = step_s(link="NVLink 4"), step_s(link="10 Gb/s Ethernet")
    assert fast < slow
    assert step_s(link="10 Gb/s Ethernet", workers=2) > slow


def test_what_cannot_be_a_pipeline_is_said() -> None:
    with pytest.raises(InputError, match="googlenet cannot be a pipeline: "):
        paceline.predict_pipeline("googlenet", "H200", link="NVLink 4", **DATA)
    with pytest.raises(InputError, match="too few for `pipeline=60`"):
        paceline.predict_pipeline("vgg11", "H200", pipeline=60, microbatches=64, link="NVLink 4", **DATA)
    with pytest.raises(InputError, match="`microbatches=7` should divide `batch=64`"):
        paceline.predict_pipeline("vgg11", "H200", microbatches=7, link="NVLink 4", **DATA)
