"""What the name of a built-in network means as a workload, beyond the defaults: settings with which it trains well."""

from __future__ import annotations

from typing import Any

IMAGENET = {"data": "synthetic:3x224x224/1000", "optimizer": "momentum", "l2": 5e-4, "epochs": 1}
RECONSTRUCTION = {
    "loss": "model", "batch": 100, "optimizer": "adam", "lr": 2e-3, "schedule": "cosine", "epochs": 10,
}  # fmt: skip

BUILT_IN: dict[str, dict[str, Any]] = {
    "mlp": {"batch": 100, "optimizer": "momentum", "lr": 0.1, "schedule": "cosine", "epochs": 20},
    "dnn": {
        "batch": 64, "optimizer": "momentum", "lr": 0.05, "schedule": "cosine", "l2": 1e-5, "dropout": 0.1,
        "epochs": 20,
    },
    "rnn": {"batch": 100, "optimizer": "adam", "lr": 1e-3, "schedule": "cosine", "clip_norm": 1.0, "epochs": 8},
    "gru": {"batch": 100, "optimizer": "adam", "lr": 4e-3, "schedule": "cosine", "epochs": 8},
    "lstm": {"batch": 100, "optimizer": "adam", "lr": 4e-3, "schedule": "cosine", "epochs": 8},
    "lenet5": {"batch": 64, "optimizer": "adam", "lr": 2e-3, "schedule": "cosine", "epochs": 10},
    "alexnet": {**IMAGENET, "batch": 128, "lr": 0.01},
    "vgg11": {**IMAGENET, "batch": 32, "lr": 0.01},
    "vgg16": {**IMAGENET, "batch": 32, "lr": 0.01},
    "googlenet": {**IMAGENET, "batch": 32, "lr": 0.01},
    "resnet18": {**IMAGENET, "batch": 64, "lr": 0.05, "l2": 1e-4},
    "resnet50": {**IMAGENET, "batch": 32, "lr": 0.05, "l2": 1e-4},
    "resnet20": {
        "data": "cifar10", "batch": 128, "optimizer": "momentum", "lr": 0.1, "schedule": "cosine", "l2": 1e-4,
        "epochs": 160,
    },
    "textlstm": {"data": "text", "batch": 32, "optimizer": "adam", "lr": 2e-3, "schedule": "cosine", "epochs": 5},
    "transformer": {
        "data": "text", "batch": 32, "optimizer": "adam", "lr": 1e-3, "schedule": "warm-up:0.2+cosine", "epochs": 5,
    },
    "recursive": {
        "data": "logic:5", "batch": 100, "optimizer": "adam", "lr": 4e-3, "schedule": "cosine", "epochs": 5,
    },
    "rbm": {"loss": "model", "batch": 100, "optimizer": "sgd", "lr": 0.05, "schedule": "cosine", "epochs": 10},
    "dbn": {"loss": "model", "batch": 100, "optimizer": "adam", "lr": 2e-3, "schedule": "cosine", "epochs": 12},
    "autoencoder": RECONSTRUCTION,
    "vae": RECONSTRUCTION,
    "cvae": RECONSTRUCTION,
    "deconvolutional": RECONSTRUCTION,
    "gan": {
        "loss": "model", "batch": 64, "optimizer": "adam", "lr": 1e-3, "betas": (0.5, 0.999), "schedule": "cosine",
        "epochs": 6,
    },
}  # fmt: skip
