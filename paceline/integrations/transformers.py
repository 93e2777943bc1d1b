"""A callback for the `Trainer` of Hugging Face Transformers.

trainer = transformers.Trainer(model, args, train_dataset=data, callbacks=[clock := LayerClockCallback()])
trainer.train()
print(clock.measurement())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.errors import InputError, PacelineError
from paceline.measurement.layer_clock import LayerClock

try:
    from transformers import TrainerCallback
except ImportError:
    raise PacelineError("the callback for Transformers needs it: pip install paceline[transformers]") from None

if TYPE_CHECKING:
    from paceline.measurement.measurement import Measurement


class LayerClockCallback(TrainerCallback):  # type: ignore[misc]
    """Measures the layers of the model that a `Trainer` trains; the settings are those of `paceline.LayerClock`."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.clock: LayerClock | None = None
        self._batch = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        self._batch = args.per_device_train_batch_size * args.gradient_accumulation_steps
        self.clock = LayerClock(model, **self.settings)
        self.clock.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.clock is not None:
            self.clock.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.clock is not None:
            self.clock.__exit__(None, None, None)

    def measurement(self, name: str = "") -> Measurement:
        """The measurement of the last `train`."""
        if self.clock is None:
            raise InputError("nothing was measured: give the callback to a Trainer and call its train()")
        return self.clock.measurement(name, batch=self._batch)
