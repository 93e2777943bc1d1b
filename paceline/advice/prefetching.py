"""Whether batches have to be fetched ahead: that depends on where the data lie and on the bus to the device."""

from __future__ import annotations

from paceline.advice.advice import Choice
from paceline.advice.data_facts import DataFacts
from paceline.advice.hardware import HardwareOption
from paceline.cost.prediction import Prediction
from paceline.cost.shared_bus import SharedBus
from paceline.formatting import duration, percent
from paceline.free_memory import memory_size
from paceline.step.feeder import SHARE_OF_MEMORY

NUMBER_BYTES = 4


def choose_prefetching(facts: DataFacts, option: HardwareOption, workers: int, prediction: Prediction | None) -> Choice:
    """Paceline decides by itself when training; this says what it will do, and what that costs."""
    topic = "prefetching"
    all_bytes = facts.samples * facts.inputs * NUMBER_BYTES
    if facts.source.startswith("images:"):
        return Choice(topic, "yes", "other processes read and decode the next images while the step computes")
    if not option.is_gpu:
        return Choice(topic, "not needed", "the data are already in main memory, where the CPU uses them")
    memory_bytes = option.memory_bytes or 0
    size = f"{memory_size(all_bytes) if all_bytes > 1e8 else f'{all_bytes / 1e6:.1f} MB'} of data"
    if all_bytes <= SHARE_OF_MEMORY * memory_bytes:
        return Choice(topic, "not needed", f"{size} fit into the device's memory of {memory_size(memory_bytes)}")
    bus = option.machine.host_device if option.machine is not None else None
    if bus is None or prediction is None:
        return Choice(topic, "yes", f"{size} do not fit on the device: the next batch is copied while it computes")
    feeding = SharedBus(prediction.batch * facts.inputs * NUMBER_BYTES, bus.bandwidth, min(workers, option.per_machine))
    iteration_s = prediction.iteration_s
    without_s, with_s = feeding.iteration_s(iteration_s), feeding.iteration_s(iteration_s, ahead=True)
    said = f"a batch takes {duration(feeding.all_s)} over {bus.name} and {duration(iteration_s)} to compute"
    if with_s > iteration_s:
        idle = percent(1 - iteration_s / with_s, 0)
        why = f"{said}: even so, the device waits {idle} of the time; keep the data on the devices or use fewer"
        return Choice(topic, "yes", why, with_s)
    return Choice(
        topic, "yes", f"{said}: free with prefetching, {percent(without_s / with_s - 1, 0)} longer without it", with_s
    )
