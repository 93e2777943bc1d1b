"""The callback for Lightning measures the layers of a fit, and leaves its validation out."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.measurement.slow_layers import hooks_of, slept_s


@pytest.fixture
def lightning():
    """Imported by the tests that need it: it takes seconds, and every process of the first tier reads this file."""
    return pytest.importorskip("lightning.pytorch", reason="lightning is not installed")


def lightning_module(lightning):
    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

        def training_step(self, batch, index):
            x, y = batch
            return nn.functional.cross_entropy(self.layers(x), y)

        def validation_step(self, batch, index):
            slept_s(0.05)
            self.layers(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module()


@pytest.mark.slow
@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_fit_is_measured(accumulated, tmp_path, lightning):
    from paceline.integrations.lightning import LayerClockCallback

    data = DataLoader(TensorDataset(torch.randn(120, 4), torch.randint(2, (120,))), batch_size=4)
    module, callback = lightning_module(lightning), LayerClockCallback(every=2, warm_up=1)
    trainer = lightning.Trainer(
        max_epochs=2, callbacks=[callback], accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        accumulate_grad_batches=accumulated, num_sanity_val_steps=0, gradient_clip_val=1.0,
    )  # fmt: skip
    trainer.fit(module, data, data)
    measured = callback.measurement("lit")
    assert measured.batch == 4 * accumulated and measured.iterations >= 60 / accumulated - 4
    assert {"layers.0", "layers.2"} <= {layer.name for layer in measured.layers}
    for part in ("load", "forward", "backward", "update", "clip", "loop"):
        assert measured.parts_s[part] > 0.0, part
    assert measured.iteration_s.mean_s < 0.05
    assert hooks_of(module) == 0
