"""Trains, keeps the run in a folder, and loads its checkpoint with nothing but PyTorch."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import paceline


def the_same_network() -> nn.Module:
    """mlp as PyTorch alone writes it; the names of the layers are Paceline's."""
    network = nn.Sequential()
    network.add_module("flatten", nn.Flatten())
    network.add_module("fc1", nn.Linear(64, 50))
    network.add_module("activation1", nn.ReLU())
    network.add_module("output", nn.Linear(50, 10))
    return network


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp()) / "run"
    run = paceline.train("mlp", data="digits", epochs=5, out=folder)

    saved = torch.load(folder / "checkpoint.pt", weights_only=True, map_location="cpu")
    network = the_same_network()
    network.load_state_dict(saved["parameters"])

    test = paceline.load_dataset("digits").test
    with torch.no_grad():
        right = (network.eval()(test.x).argmax(1) == test.y).float().mean().item()
    print(f"saved after {saved['updates']} updates of {saved['workload']['optimizer']}")
    print(f"test accuracy {100 * right:.2f} % in PyTorch, {100 * run.test_accuracy:.2f} % in the record")

    again = paceline.load(folder)
    print(f"the record says: {again.status}, {len(again.epochs)} epochs, {again.conditions.device_name}")
