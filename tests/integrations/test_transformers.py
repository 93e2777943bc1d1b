"""The callback for Hugging Face's Trainer measures the layers of a training, with accumulation and evaluation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.measurement.slow_layers import hooks_of, slept_s


@pytest.fixture
def transformers():
    """Imported by the tests that need it: it takes seconds, and every process of the first tier reads this file."""
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    return pytest.importorskip("transformers", reason="transformers is not installed")


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x=None, labels=None):
        if not torch.is_grad_enabled():
            slept_s(0.02)
        logits = self.last(self.first(x).relu())
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.slow
def test_a_training_is_measured(tmp_path, transformers):
    from paceline.integrations.transformers import LayerClockCallback

    data = [{"x": torch.randn(4), "labels": torch.tensor(i % 2)} for i in range(96)]
    model, callback = Classifier(), LayerClockCallback(every=2, warm_up=1)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=3,
        use_cpu=True, report_to=[], save_strategy="no", eval_strategy="steps", eval_steps=10, disable_tqdm=True,
    )  # fmt: skip
    transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[callback]).train()
    measured = callback.measurement("hf")
    assert measured.batch == 8 and 30 <= measured.iterations <= 36
    layers = {layer.name: layer for layer in measured.layers}
    assert layers["first"].calls == 2 and layers["first"].backward_s.mean_s > 0.0
    assert measured.parts_s["clip"] > 0.0 and measured.parts_s["update"] > 0.0 and measured.parts_s["load"] > 0.0
    assert measured.validation_s > 0.0 and measured.parts_s["forward"] < 0.02
    assert hooks_of(model) == 0


@pytest.mark.slow
def test_a_small_language_model_of_transformers(transformers):
    """Outputs are dictionaries, and layers have long names."""
    import paceline

    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=16)
    model = transformers.GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters())
    data = [{"input_ids": torch.randint(50, (2, 8))} for _ in range(9)]
    with paceline.LayerClock(model, every=2, warm_up=1) as clock:
        for batch in clock.batches(data):
            model(**batch, labels=batch["input_ids"]).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    measured = clock.measurement()
    assert measured.batch == 2 and "transformer.h.0.attn.c_attn" in {layer.name for layer in measured.layers}
