"""Colours of a page in light and dark mode; lines and bars have a contrast of at least 3:1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.results.run_result import RunResult

LIGHT = {
    "paper": "#ffffff", "panel": "#f4f6f9", "rule": "#dbe1e9", "ink": "#1b2430", "soft": "#556070", "link": "#1a5fd0",
    "quiet": "#c3ccd8",
    "c0": "#1f6feb", "c1": "#c2410c", "c2": "#2e7d4f", "c3": "#7c5cd6", "c4": "#0e7c86", "c5": "#b83280",
    "c6": "#8a6d00", "c7": "#5a6675", "c8": "#7d4a35", "c9": "#173a7a",
}  # fmt: skip
DARK = {
    "paper": "#11151b", "panel": "#1a2029", "rule": "#303947", "ink": "#e8edf4", "soft": "#a3afbf", "link": "#7db8ff",
    "quiet": "#4a5565",
    "c0": "#6cb0ff", "c1": "#ffa163", "c2": "#5fcf95", "c3": "#b49bff", "c4": "#4fc7d1", "c5": "#f08cc4",
    "c6": "#e0bd5a", "c7": "#a3afbf", "c8": "#c79a82", "c9": "#b9d3ff",
}  # fmt: skip
LINES = 8  # number of colours that lines and bars cycle through

PARTS = {
    "forward": "c0", "backward": "c1", "update": "c2", "communicate": "c3", "load": "c6", "copy": "c4",
    "idle": "quiet", "loop": "c7",
    "computing": "c0", "communicating": "c3", "waiting": "quiet",
    "compute": "c0", "fetch": "c3", "push": "c4", "wait": "quiet", "apply": "c2",
    "loading data": "c6", "preparing": "c7", "starting processes": "c5", "training": "c0", "validating": "c1",
    "writing checkpoints": "c8", "unattributed": "quiet",
    "prepare": "c7", "start": "c5", "train": "c9", "validate": "c1", "checkpoint": "c8",
    "published": "c7", "ours": "c0", "test": "c1", "predicted": "c0", "measured": "c1",
}  # fmt: skip
"""Colours by meaning, the same in every figure; other names take the next colour of the cycle."""


def style_of_colours() -> str:
    """CSS variables: for the system's preference, the page's button, and print."""
    light, dark = ("".join(f"--{name}:{colour};" for name, colour in each.items()) for each in (LIGHT, DARK))
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark)"
        f"{{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}}}}}\n"
    )


def colour_of(name: str, place: int) -> str:
    """The color of a part or line in light mode."""
    return LIGHT[PARTS.get(name, f"c{place % LINES}")]


def line_styles(names: Iterable[str], dashed: str) -> dict[str, list[int]]:
    """Colour and dash by name: `x, measured` and `x, model` share a colour; names that end in `dashed` are dashed."""
    about = {name: name.rpartition(", ")[0] or name for name in names}
    hues = list(dict.fromkeys(about.values()))
    return {name: [hues.index(what), int(name.endswith(dashed))] for name, what in about.items()}


def group_styles(runs: Sequence[RunResult]) -> dict[str, dict[str, list[int]]]:
    """A colour and a dash for each group whose name has two parts: one part sets the colour, the other the dash."""
    firsts = list(dict.fromkeys(run.telling[:1] for run in runs))
    rests = list(dict.fromkeys(run.telling[1:] for run in runs))
    if len(firsts) < 2 or len(rests) < 2 or max(len(firsts), len(rests)) > 8 or min(len(firsts), len(rests)) > 3:
        return {}
    places = {run.group: [rests.index(run.telling[1:]), firsts.index(run.telling[:1])] for run in runs}
    if len(firsts) > len(rests):
        places = {group: place[::-1] for group, place in places.items()}
    return {"styles": places}
