"""A model of your own, trained by Paceline: from Python here, or from this folder with

paceline train own_model:build --data digits
"""

from torch import Tensor, nn

import paceline


class Residual(nn.Module):
    """Adds what a small convolution finds to its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.convolution(x).relu()


def build() -> nn.Module:
    """A network for the bundled digits, images of 1 x 8 x 8 and ten classes."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), Residual(16), nn.MaxPool2d(2), Residual(16),
        nn.Flatten(), nn.Linear(16 * 4 * 4, 10),
    )  # fmt: skip


if __name__ == "__main__":
    network = build()
    run = paceline.train(network, data="digits", batch=32, epochs=5, optimizer="momentum", lr=0.05, schedule="cosine")
    print(f"step: {run.step.kind} ({run.step.reason})")
    for epoch in run.epochs:
        print(f"epoch {epoch.epoch}: loss {epoch.loss:.3f}, test accuracy {100 * epoch.test_accuracy:.1f} %")
