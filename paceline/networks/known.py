"""Which networks exist, the data they were published for, and the file each is written in."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("image", "table", "text")


@dataclass(frozen=True)
class Entry:
    family: str  # the file here that holds a function of the network's name
    description: str
    kinds: tuple[str, ...]
    shape: tuple[int, ...]
    classes: int


_IMAGENET = (3, 224, 224)

KNOWN: dict[str, Entry] = {
    "mlp": Entry("feedforward", "one hidden layer of 50, ReLU", ("image", "table"), (1, 28, 28), 10),
    "dnn": Entry("feedforward", "two hidden layers of 64, tanh, dropout", ("image", "table"), (1, 28, 28), 10),
    "lstm": Entry("recurrent", "reads an image row by row, 128 hidden units", ("image",), (1, 28, 28), 10),
    "lenet5": Entry("lenet", "LeNet-5 with ReLU and max pooling", ("image",), (1, 28, 28), 10),
    "alexnet": Entry("alexnet", "AlexNet for one device (2014)", ("image",), _IMAGENET, 1000),
    "vgg11": Entry("vgg", "VGG configuration A, 8 convolutions", ("image",), _IMAGENET, 1000),
    "vgg16": Entry("vgg", "VGG configuration D, 13 convolutions", ("image",), _IMAGENET, 1000),
    "googlenet": Entry(
        "googlenet", "Inception v1 with batch norm and two auxiliary heads", ("image",), _IMAGENET, 1000
    ),
    "resnet18": Entry("resnet", "18-layer residual network", ("image",), _IMAGENET, 1000),
    "resnet50": Entry("resnet", "50-layer residual network with bottlenecks", ("image",), _IMAGENET, 1000),
    "resnet20": Entry("resnet", "20-layer residual network for small images", ("image",), (3, 32, 32), 10),
    "textlstm": Entry("recurrent", "predicts the next character, 256 hidden units", ("text",), (64,), 65),
    "transformer": Entry("transformer", "predicts the next character, 4 blocks of width 128", ("text",), (64,), 65),
}


def fitting(kind: str) -> str:
    """The names that take this kind of data, for the end of an error."""
    return ", ".join(name for name, entry in KNOWN.items() if kind in entry.kinds)
