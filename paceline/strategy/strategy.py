"""A strategy is data: how workers are grouped and how often they exchange, and the names of three small objects.

*What* is exchanged, *how* a late payload is corrected and *which* optimizer the server runs are objects of their own
(`exchange`, `correction`, `server_optimizer`), built in or the user's `module:name`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from paceline.errors import StrategyError, nearest
from paceline.settings import check, setting
from paceline.strategy.plugin import name_of

if TYPE_CHECKING:
    from paceline.strategy.correction import Correction
    from paceline.strategy.exchange import Exchange

MOST_WORKERS = 10_000_000
"""Beyond that even a simulation of time alone would take hundreds of gigabytes."""


DISTRIBUTION = "Distribution"
"""A panel of the help."""
DISTRIBUTED = ("local", "ray", "virtual", "simulate")
"""The kinds of run that a strategy has an effect on."""
_OPTIONS = ("train", "simulate")


@dataclass(frozen=True)
class Strategy:
    """One group of all workers is synchronous, groups of one are asynchronous, anything between is mixed."""

    COMMON: ClassVar[dict[str, Any]] = {"group": DISTRIBUTION, "runs": DISTRIBUTED}

    name: str = "sync"
    groups: int | None = setting(1, "Number of synchronous groups; none: every worker is its own group.", least=1)
    exchange: str = setting(
        "gradient", "What workers push: gradient, delta, elastic, int8, topk:SHARE, momentum-topk:SHARE, module:name; "
        "delta+int8 and similar compress the result of local steps.", verbs=_OPTIONS,
    )  # fmt: skip
    fetch_every: int = setting(
        1, "Steps between two fetches of the parameters; 0: only when a worker joins.", least=0, verbs=_OPTIONS
    )
    push_every: int = setting(1, "Steps between two pushes.", least=1, verbs=_OPTIONS)
    local_step: bool = setting(
        False, "Whether a worker applies its own gradient to its copy of the parameters between two fetches."
    )
    overlap: bool = setting(False, "Whether a worker continues before its payload is applied.")
    correction: str = setting(
        "none", "Correction of late payloads: none, constant:LAMBDA, adaptive:LAMBDA, staleness or module:name.",
        verbs=_OPTIONS,
    )  # fmt: skip
    server_optimizer: str = setting(
        "", "Optimizer of the server, with its learning rate: adagrad:0.5, torch.optim:RAdam or module:name; empty: "
        "the workload's.", verbs=_OPTIONS,
    )  # fmt: skip
    softsync_n: int | None = setting(None, "The n of n-softsync: an update waits for workers / n payloads.", least=1)
    staleness_bound: int | None = setting(
        None, "Maximum lead of the fastest group over the slowest, in pushes.", least=0, verbs=_OPTIONS
    )
    backup_workers: int = setting(0, "Workers that a synchronous step does not wait for.", least=0, verbs=_OPTIONS)
    warm_start: int = setting(0, "Updates that the first worker makes before the others start.", least=0)
    fragments: int | None = setting(
        None, "Pieces of the parameters that synchronous groups exchange in turn, one per push; none: all at once.",
        least=1,
    )  # fmt: skip
    overlap_steps: int = setting(
        0, "With fragments: steps after a push before its worker takes over the result, at most those until the next "
        "push.", least=0,
    )  # fmt: skip
    mixing: float = setting(
        0.0, "With fragments: share of its own parameters that a worker keeps when it takes over a result.", least=0,
        most=1,
    )  # fmt: skip
    full_pass_per_worker: bool = setting(
        False, "Every worker makes a full pass over the data instead of a share of it.", verbs=("simulate",)
    )

    def __post_init__(self) -> None:
        for name in ("exchange", "correction", "server_optimizer"):
            object.__setattr__(self, name, name_of(getattr(self, name)))
        check(self, StrategyError)
        if self.staleness_bound is not None and self.groups == 1:
            raise StrategyError(
                f"a staleness bound is for asynchronous workers; with {self.name} all of them wait for each other"
            )
        if self.backup_workers and self.groups != 1:
            raise StrategyError("backup workers are for one synchronous group")
        if self.softsync_n is not None and self.groups is not None:
            raise StrategyError("softsync_n is for asynchronous workers, groups of one")
        if self.fragments is None and (self.overlap_steps or self.mixing):
            raise StrategyError("overlap_steps and mixing are for parameters that are exchanged in fragments")
        if self.fragments is not None and (self.groups is None or self.backup_workers):
            raise StrategyError("fragments are for synchronous groups that wait for all of their workers")
        if self.fragments is not None and self.correction != "none":
            raise StrategyError(f"fragments cannot be combined with correction={self.correction}")

    @property
    def make_exchange(self) -> Exchange:
        from paceline.strategy.exchange import find_exchange

        return find_exchange(self.exchange)

    @property
    def make_correction(self) -> Correction | None:
        """None where nothing is corrected."""
        from paceline.strategy.correction import find_correction

        return find_correction(self.correction)

    @property
    def one_batch_per_task(self) -> bool:
        """Whether a task is one fetch, one step and one push."""
        return self.fetch_every == 1 and self.push_every == 1

    @property
    def is_synchronous(self) -> bool:
        """Whether every update waits for all workers."""
        return self.groups == 1 and not self.backup_workers

    def group_of(self, worker: int, workers: int) -> int:
        """Neighbours share a group; a worker beyond the first `workers` joins one in turn."""
        if self.groups is None:
            return worker
        return worker * self.groups // workers if worker < workers else worker % self.groups

    def members_of(self, group: int, workers: int) -> list[int]:
        return [worker for worker in range(workers) if self.group_of(worker, workers) == group]

    def payloads_per_update(self, workers: int) -> int:
        """How many groups' payloads an update waits for."""
        return 1 if self.softsync_n is None else max(1, workers // self.softsync_n)

    def check(self, workers: int, batches: int | None = None) -> None:
        """Raises an error unless it can run with `workers` on `batches` per epoch and what it names can be found."""
        from paceline.strategy.server_optimizer import check_optimizer, is_built_in

        if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= MOST_WORKERS:
            raise StrategyError(f"workers={workers!r} should be a whole number from 1 to {MOST_WORKERS:,}")
        if self.groups is not None and workers % self.groups:
            raise StrategyError(f"{self.groups} groups do not divide {workers} workers")
        if self.backup_workers >= workers:
            raise StrategyError(f"backup_workers={self.backup_workers} should be less than workers={workers}")
        if self.softsync_n is not None and self.softsync_n > workers:
            raise StrategyError(f"softsync_n={self.softsync_n} is more than {workers} workers")
        if batches is not None and not self.full_pass_per_worker and workers > batches:
            raise StrategyError(
                f"{workers} workers share {batches} batches per epoch: use fewer workers or a smaller batch"
            )
        _ = self.make_exchange, self.make_correction
        if self.fragments is not None and not (self.make_exchange.local_optimizer and self.make_exchange.fetch_first):
            raise StrategyError(
                "fragments are for what an optimizer of the worker's own has changed: use exchange=delta or "
                f"delta+int8, not {self.exchange}"
            )
        check_optimizer(self.server_optimizer)
        if self.fragments is not None and not is_built_in(self.server_optimizer):
            raise StrategyError(f"fragments need a built-in server optimizer, not {self.server_optimizer}")

    def with_changes(self, **changes: Any) -> Strategy:
        """The same with some fields replaced, or an error that names the nearest field."""
        fields = [field.name for field in dataclasses.fields(Strategy)]
        unknown = sorted(changes.keys() - set(fields))
        if unknown:
            raise StrategyError(f"a strategy has no {unknown[0]!r}: {nearest(unknown[0], fields)}")
        changed = dataclasses.replace(self, **changes)
        changed._check_purpose(self)
        return changed

    def _check_purpose(self, before: Strategy) -> None:
        """Whether the changes leave what the strategy is for."""
        if before.is_synchronous and self.groups != 1:
            use = "delay-compensated" if self.groups is None else "mixed"
            raise StrategyError(f"{before.name} is one group of all workers: for groups={self.groups} use {use}")
        correction = self.make_correction
        if self.groups == 1 and correction is not None and correction.late_only:
            raise StrategyError(
                f"correction={self.correction} is for late payloads, and with {self.name} none is late: "
                "use the strategy delay-compensated, or mixed with several groups"
            )
