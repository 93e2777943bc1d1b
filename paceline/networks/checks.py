"""Checks of arguments that are specific to a family of networks."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import NetworkError


def image_shape(name: str, shape: tuple[int, ...], at_least: int = 1) -> tuple[int, int, int]:
    """Channels, height and width of an image, which must be large enough for the network."""
    if len(shape) != 3:
        raise NetworkError(f"shape {shape} does not fit {name!r}: it takes images (channels, height, width)")
    channels, height, width = shape
    if min(height, width) < at_least:
        raise NetworkError(
            f"shape {shape} is too small for {name!r}: it needs at least {at_least} x {at_least} pixels,"
            " so enlarge the images or use lenet5 or a resnet"
        )
    return channels, height, width


def text_shape(name: str, shape: tuple[int, ...]) -> int:
    """The number of characters in a window."""
    if len(shape) != 1:
        raise NetworkError(f"shape {shape} does not fit {name!r}: it takes windows of characters (length,)")
    return shape[0]


def positive(option: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise NetworkError(f"option {option} = {value!r} must be a whole number of at least 1")
    return value


MOST_DEPTH = 1000
"""Ten times the depth used in practice; each layer takes milliseconds to build."""


def depth_of(value: object) -> int:
    """Checks the option depth."""
    if positive("depth", value) > MOST_DEPTH:
        raise NetworkError(f"option depth = {value} is more than {MOST_DEPTH:,}: use fewer layers")
    return positive("depth", value)


def positives(option: str, value: int | Sequence[int]) -> tuple[int, ...]:
    """One number or several, such as `hidden = 50` and `hidden = [64, 64]`."""
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return tuple(positive(option, each) for each in value)
    return (positive(option, value),)


def no_activation(name: str, activation: str | None) -> None:
    if activation is not None:
        raise NetworkError(
            f"activation {activation!r} cannot be set for {name!r} with its fixed functions: leave it out"
        )


def no_dropout(name: str, dropout: float | None) -> None:
    if dropout:
        raise NetworkError(f"dropout {dropout!r} cannot be set for {name!r}: leave it out")
