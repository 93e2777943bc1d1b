"""Two phases of your own: a restricted Boltzmann machine learns features of the digits by contrastive divergence
(Hinton 2002), and a classifier learns to read them. Each phase has its own parameters, rule and gradient.

paceline train own_phases:Machine --data digits --batch 32 --epochs 10 --set phases=own_phases:phases
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import paceline


class Machine(nn.Module):
    def __init__(self, visible: int = 64, hidden: int = 128) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.05 * torch.randn(hidden, visible))
        self.visible, self.hidden = nn.Parameter(torch.zeros(visible)), nn.Parameter(torch.zeros(hidden))
        self.output = nn.Linear(hidden, 10)

    def features(self, v: Tensor) -> Tensor:
        return torch.sigmoid(F.linear(v, self.weight, self.hidden))

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.features(x.flatten(1)).detach())


class ContrastiveDivergence:
    """What the machine believes of the data, less what it believes of its own reconstruction."""

    def __init__(self, machine: Machine) -> None:
        self.name, self.machine = "contrastive divergence", machine
        self.parameters: Sequence[nn.Parameter] = [machine.weight, machine.visible, machine.hidden]
        self.rule = paceline.Rule("momentum", lr=0.05)

    @torch.no_grad()
    def gradient(self, batch: tuple[Tensor, Tensor], generator: torch.Generator) -> paceline.Outcome:
        v = batch[0].flatten(1)
        h = self.machine.features(v)
        drawn = torch.bernoulli(h, generator=generator)
        v2 = torch.sigmoid(F.linear(drawn, self.machine.weight.t(), self.machine.visible))
        h2 = self.machine.features(v2)
        gradients = [(h2.t() @ v2 - h.t() @ v) / len(v), (v2 - v).mean(0), (h2 - h).mean(0)]
        return paceline.Outcome(F.mse_loss(v2, v), gradients)


def phases(machine: Machine, workload: paceline.Workload) -> list[paceline.Phase]:
    classifier = paceline.LossPhase(machine, workload, "classifier")
    classifier.parameters = list(machine.output.parameters())
    return [ContrastiveDivergence(machine), classifier]


if __name__ == "__main__":
    run = paceline.train(Machine(), data="digits", batch=32, epochs=10, lr=0.2, phases=phases)
    print(f"step: {run.step.kind}; test accuracy {100 * run.test_accuracy:.1f} %")
