"""The built-in networks, the data they were published for, and the module of each."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("image", "table", "text", "tree")


@dataclass(frozen=True)
class NetworkEntry:
    family: str  # the module with a function of the network's name
    description: str
    kinds: tuple[str, ...]
    shape: tuple[int, ...]
    classes: int
    labels: bool = True
    """Whether it needs labelled data."""


_IMAGENET = (3, 224, 224)

KNOWN: dict[str, NetworkEntry] = {
    "mlp": NetworkEntry("feedforward", "one hidden layer of 50, ReLU", ("image", "table"), (1, 28, 28), 10),
    "dnn": NetworkEntry("feedforward", "two hidden layers of 64, tanh, dropout", ("image", "table"), (1, 28, 28), 10),
    "rnn": NetworkEntry("recurrent", "reads an image row by row, 128 tanh units", ("image",), (1, 28, 28), 10),
    "gru": NetworkEntry("recurrent", "reads an image row by row, 128 gated units", ("image",), (1, 28, 28), 10),
    "lstm": NetworkEntry("recurrent", "reads an image row by row, 128 hidden units", ("image",), (1, 28, 28), 10),
    "lenet5": NetworkEntry("lenet", "LeNet-5 with ReLU and max pooling", ("image",), (1, 28, 28), 10),
    "alexnet": NetworkEntry("alexnet", "AlexNet for one device (2014)", ("image",), _IMAGENET, 1000),
    "vgg11": NetworkEntry("vgg", "VGG configuration A, 8 convolutions", ("image",), _IMAGENET, 1000),
    "vgg16": NetworkEntry("vgg", "VGG configuration D, 13 convolutions", ("image",), _IMAGENET, 1000),
    "googlenet": NetworkEntry(
        "googlenet", "Inception v1 with batch norm and two auxiliary heads", ("image",), _IMAGENET, 1000
    ),
    "resnet18": NetworkEntry("resnet", "18-layer residual network", ("image",), _IMAGENET, 1000),
    "resnet50": NetworkEntry("resnet", "50-layer residual network with bottlenecks", ("image",), _IMAGENET, 1000),
    "resnet20": NetworkEntry("resnet", "20-layer residual network for small images", ("image",), (3, 32, 32), 10),
    "textlstm": NetworkEntry("recurrent", "predicts the next character, 256 hidden units", ("text",), (64,), 65),
    "transformer": NetworkEntry(
        "transformer", "predicts the next character, 4 blocks of width 128", ("text",), (64,), 65
    ),
    "recursive": NetworkEntry("recursive", "composes a tree from its leaves, 32 units per node", ("tree",), (63,), 2),
    "rbm": NetworkEntry(
        "rbm", "restricted Boltzmann machine, 256 hidden units", ("image", "table"), (1, 28, 28), 10, labels=False
    ),
    "dbn": NetworkEntry(
        "dbn", "deep belief network: two Boltzmann machines, then fine-tuned", ("image", "table"), (1, 28, 28), 10
    ),
    "autoencoder": NetworkEntry(
        "autoencoder", "auto-encoder with a code of 20 numbers", ("image", "table"), (1, 28, 28), 10, labels=False
    ),
    "vae": NetworkEntry(
        "vae",
        "variational auto-encoder; generates samples",
        ("image", "table"),
        (1, 28, 28),
        10,
        labels=False,
    ),
    "cvae": NetworkEntry("vae", "conditional VAE; generates samples of a class", ("image", "table"), (1, 28, 28), 10),
    "deconvolutional": NetworkEntry(
        "deconvolutional",
        "decodes 20 numbers into an image with transposed convolutions",
        ("image",),
        (1, 28, 28),
        10,
        labels=False,
    ),
    "gan": NetworkEntry("gan", "DCGAN: generator and discriminator", ("image",), (1, 28, 28), 10, labels=False),
}


def fitting(kind: str) -> str:
    """The networks that take this kind of data, for error messages."""
    return ", ".join(name for name, entry in KNOWN.items() if kind in entry.kinds)


def needs_labels(name: str) -> bool:
    return name not in KNOWN or KNOWN[name].labels
