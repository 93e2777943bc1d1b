"""Fills in the templates. Texts become quoted YAML or shell words, so that no name in a plan can break a file."""

from __future__ import annotations

import json
import shlex
from typing import Any

import jinja2

from paceline.deployment.planned_cluster import PlannedCluster

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("paceline.deployment"), undefined=jinja2.StrictUndefined, trim_blocks=True,
    lstrip_blocks=True, keep_trailing_newline=True, autoescape=False,
)  # fmt: skip
_ENVIRONMENT.filters["yaml"] = lambda value: json.dumps(value, ensure_ascii=False)  # JSON is YAML
_ENVIRONMENT.filters["shell"] = lambda value: shlex.quote(str(value))


def fill_in(template: str, cluster: PlannedCluster, **values: Any) -> str:
    return _ENVIRONMENT.get_template(template).render(cluster=cluster, settings=cluster.settings, **values)


def lines_of(command: list[list[str]]) -> list[str]:
    """A command as lines of shell words, an option and its value on each."""
    return [shlex.join(group) for group in command]
