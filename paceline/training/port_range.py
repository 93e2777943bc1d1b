"""The ports on which the members of a group may listen, as a setting: FIRST-LAST."""

from __future__ import annotations

import re

from paceline.errors import StrategyError


def parse_port_range(text: str) -> range:
    """`40000-40999`; empty: any port."""
    if not text:
        return range(0)
    found = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", text)
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1024 <= first <= last <= 65535:
        raise StrategyError(
            f"`port_range={text!r}` should be FIRST-LAST, two ports from 1024 to 65535, e.g. 40000-40999"
        )
    return range(first, last + 1)
