"""A saved plan, and a plan as what `train` is to do; settings that are given beside it come first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.plan import FILE
from paceline.api.settings import as_path
from paceline.errors import InputError, a_type
from paceline.planning import running
from paceline.record import load
from paceline.trust import check_code
from paceline.workload import Workload, with_settings

if TYPE_CHECKING:
    from paceline.planning.plan import Plan
    from paceline.strategy.strategy import Strategy


def as_planned(
    plan: Plan, strategy: str | Strategy | None, workers: int | None, settings: dict[str, Any]
) -> tuple[Workload, Strategy | None, int | None, dict[str, Any]]:
    """Workload, strategy, number of workers, and the settings that are left."""
    if strategy is not None:
        raise InputError("`strategy` and a plan cannot be combined: the plan has one")
    planned, chosen, count = running.planned_settings(
        plan, running.local_hardware(), device=settings.get("device"), workers=workers
    )
    check_code({**vars(plan.workload), **(vars(chosen) if chosen is not None else {})}, "the plan")
    settings = running.planned_division(plan) | settings
    return with_settings(plan.workload, planned), chosen, count if chosen is not None else None, settings


def load_plan(given: Plan | str | Path) -> Plan:
    """The plan itself, that of its file, or that of its directory."""
    from paceline.planning.plan import Plan

    if isinstance(given, Plan):
        return given
    path = as_path(given, "plan")
    found = load(path / FILE if path.is_dir() else path)
    if not isinstance(found, Plan):
        raise InputError(f"`plan={str(path)!r}` holds {a_type(found).lower()}, not a plan")
    return found
