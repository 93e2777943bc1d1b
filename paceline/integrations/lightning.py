"""A callback for Lightning's `Trainer`.

trainer = lightning.Trainer(callbacks=[clock := LayerClockCallback()])
trainer.fit(model, loader)
print(clock.measurement())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.errors import InputError, PacelineError
from paceline.measurement.layer_clock import LayerClock

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError:
        raise PacelineError("the callback for Lightning needs it: pip install paceline[lightning]") from None

if TYPE_CHECKING:
    from paceline.measurement.measurement import Measurement


class LayerClockCallback(Callback):  # type: ignore[misc]
    """Measures the layers of the module that a `Trainer` fits; the settings are those of `paceline.LayerClock`."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.clock: LayerClock | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.clock = LayerClock(pl_module, **self.settings)
        self.clock.__enter__()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.clock is not None:
            self.clock.note_batch(batch)
            self.clock.step()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self.clock is not None:
            self.clock.pause()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self.clock is not None:
            self.clock.resume()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end()

    def _end(self) -> None:
        if self.clock is not None:
            self.clock.__exit__(None, None, None)

    def measurement(self, name: str = "") -> Measurement:
        """The measurement of the last `fit`."""
        if self.clock is None:
            raise InputError("nothing was measured: give the callback to a Trainer and call its fit()")
        return self.clock.measurement(name)
