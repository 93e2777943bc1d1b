"""What a worker's step takes on a cluster once everything is under way: computing, communicating, waiting for whom.

Synchronous groups exchange by an all-reduce; what lies between groups, or between workers that are groups of one, is
played by the virtual driver. Two runs of it are subtracted from each other, so that neither beginning nor end counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from paceline.simulate.durations import Duration, Spread
from paceline.simulate.group_rounds import GroupRounds
from paceline.simulate.placing import Placing
from paceline.simulate.simulation import simulate_time
from paceline.simulate.virtual_cluster import Network, VirtualCluster
from paceline.strategy.distribution import Distribution
from paceline.strategy.strategy import Strategy

MOST_STEPS = 60_000
"""Of all workers together: ten thousand of them are given fewer steps each."""
MOST_DRAWN = 4_000_000
FEWEST_ROUNDS = 8


@dataclass(frozen=True)
class StepTime:
    """In the mean over all workers; computing, communicating and waiting add up to `step_s`."""

    step_s: float
    computing_s: float
    communicating_s: float
    waiting_s: dict[str, float] = field(default_factory=dict)
    """By what is waited for: the server, the network, or straggling members of one's own group."""
    staleness: float = 0.0
    server_share: float = 0.0
    applied: float = 1.0
    """The share of steps whose gradient is not dropped."""

    @property
    def bound(self) -> str:
        """What most of a step goes to: compute, network, server or straggling."""
        shares = {"compute": self.computing_s, "network": self.communicating_s, "server": 0.0, "straggling": 0.0}
        for what, seconds in self.waiting_s.items():
            shares[what] += seconds
        return max(shares, key=lambda what: shares[what])


@dataclass(frozen=True)
class Stepping:
    """What is simulated."""

    strategy: Strategy
    placing: Placing
    compute_s: float
    """Of a step, beside the others of its machine."""
    variation: float
    """Its deviation, as a share of it."""
    message_bytes: int
    server_s: float
    """For each payload."""
    steps: int = 200
    seed: int = 0

    def time(self) -> StepTime:
        if exchanges_by_server(self.strategy, self.placing):
            return self._through_server() if acts_alone(self.strategy, self.placing) else self._groups_through_server()
        return self._all_together()

    def _all_together(self) -> StepTime:
        """One group whose members all update for themselves."""
        rounds = self._rounds()
        count = max(1, min(max(FEWEST_ROUNDS, self.steps // rounds.steps), MOST_DRAWN // rounds.members))
        for number in range(count):
            rounds(0, number)
        all_steps = rounds.rounds * rounds.members * rounds.steps
        return StepTime(
            step_s=rounds.seconds / (rounds.rounds * rounds.steps),
            computing_s=rounds.computing_s / all_steps,
            communicating_s=rounds.exchange_s / rounds.steps,
            waiting_s={"straggling": rounds.straggling_s / all_steps},
            applied=1.0 - rounds.spares / rounds.members,
        )

    def _groups_through_server(self) -> StepTime:
        """One member of each group exchanges with the server; the others wait for it."""
        groups = self.strategy.groups or 1
        made: list[GroupRounds] = []

        def compute() -> Duration:
            made.append(self._rounds())
            return made[-1]

        alone = replace(self.strategy, groups=None, fetch_every=1, push_every=1, spares=0)
        found = self._played(alone, groups, max(1, self.steps // self.strategy.push_every), compute)
        rounds = made[0]
        steps = rounds.rounds * rounds.members * rounds.steps
        waits = self._causes(found, groups, found.waiting_s)
        waits["straggling"] = waits.get("straggling", 0.0) + rounds.straggling_s / rounds.rounds / rounds.members
        return StepTime(
            step_s=found.round_s / rounds.steps,
            computing_s=rounds.computing_s / steps,
            communicating_s=(found.communicating_s + rounds.exchange_s) / rounds.steps,
            waiting_s={what: seconds / rounds.steps for what, seconds in waits.items()},
            staleness=found.staleness,
            server_share=found.server_share,
        )

    def _through_server(self) -> StepTime:
        """Every worker exchanges with the server."""
        workers, variation = self.placing.workers, self.variation
        spread = Spread("constant", (self.compute_s,))
        if variation:
            spread = Spread("gamma", (variation**-2, self.compute_s * variation**2))
        found = self._played(self.strategy, workers, self.steps, lambda: spread)
        return StepTime(
            step_s=found.round_s,
            computing_s=found.computing_s,
            communicating_s=found.communicating_s,
            waiting_s=self._causes(found, workers, found.waiting_s),
            staleness=found.staleness,
            server_share=found.server_share,
            applied=found.applied,
        )

    def _rounds(self) -> GroupRounds:
        strategy = self.strategy
        members = self.placing.workers // (strategy.groups or 1)
        exchange_s = self.placing.all_reduce_s(self.message_bytes, members)
        steps, spares = strategy.push_every, strategy.spares
        mean_s, seed = self.compute_s, self.seed
        return GroupRounds(members, steps, mean_s, self.variation, exchange_s, spares=spares, seed=seed)

    def _played(
        self, strategy: Strategy, workers: int, steps: int, compute: Callable[[], Spread | Duration]
    ) -> _Played:
        """By the virtual driver: twice, the second time with half as many steps."""
        network = self.placing.exchange(self.message_bytes)
        server = Spread("constant", (self.server_s,)) if self.server_s else None
        every = max(strategy.push_every, strategy.fetch_every)
        least = FEWEST_ROUNDS if every == 1 else FEWEST_ROUNDS // 2 * every
        steps = max(least, min(steps, MOST_STEPS // workers))
        runs = []
        for count in (steps, max(1, steps // 2)):
            cluster = VirtualCluster(compute=compute(), server=server, network=network)
            found = simulate_time(
                strategy, workers, count, cluster, seed=self.seed, message_bytes=self.message_bytes, spans=0
            )  # fmt: skip
            runs.append(_sums(found.distribution))
        return _played(runs[0], runs[1], workers)

    def _causes(self, found: _Played, senders: int, waiting_s: float) -> dict[str, float]:
        """Whom a worker waits for, besides its own messages: the server while it is busy, or who is slower."""
        strategy = self.strategy
        serving_s = min(waiting_s, found.server_share * found.round_s)
        together = strategy.groups is not None and acts_alone(strategy, self.placing)
        if together or strategy.bound is not None or strategy.softness is not None:
            return {"server": serving_s, "straggling": waiting_s - serving_s}
        link_share = senders * found.pushes_a_step * self._occupied_s() / found.round_s
        return {"network" if link_share > found.server_share else "server": waiting_s}

    def _occupied_s(self) -> float:
        network: Network = self.placing.exchange(self.message_bytes)
        return self.message_bytes / network.bandwidth if network.shared else 0.0


def acts_alone(strategy: Strategy, placing: Placing) -> bool:
    """Whether every worker exchanges for itself: processes of one machine do, since they share its memory."""
    return strategy.groups is None or (placing.together and not placing.on_gpu)


def exchanges_by_server(strategy: Strategy, placing: Placing) -> bool:
    """Whether there is a server; one group over several GPUs or machines adds up its gradients without."""
    if strategy.groups == 1:
        return placing.workers > 1 and acts_alone(strategy, placing)
    return True


@dataclass(frozen=True)
class _Sums:
    seconds: float
    steps: int
    computing_s: float
    communicating_s: float
    waiting_s: float
    server_s: float
    stale: float
    payloads: int
    applied: int
    closed: int


@dataclass(frozen=True)
class _Played:
    """A worker's step, or a group's round, in the mean."""

    round_s: float
    computing_s: float
    communicating_s: float
    waiting_s: float
    staleness: float
    server_share: float
    pushes_a_step: float
    applied: float


def _sums(found: Distribution) -> _Sums:
    ledger, workers = found.ledger, found.by_worker
    payloads = sum(ledger.staleness.values())
    return _Sums(
        found.seconds,
        found.steps,
        math.fsum(w.computing_s for w in workers),
        math.fsum(w.communicating_s for w in workers),
        math.fsum(w.waiting_s for w in workers),
        found.server_s,
        ledger.mean_staleness * payloads,
        payloads,
        ledger.applied,
        ledger.applied + ledger.dropped,
    )


def _played(long: _Sums, short: _Sums, workers: int) -> _Played:
    if long.seconds <= short.seconds or long.steps <= short.steps:
        short = replace(short, **dict.fromkeys(short.__dataclass_fields__, 0))
    steps, seconds = long.steps - short.steps, long.seconds - short.seconds
    round_s = seconds * workers / steps
    computing_s, communicating_s, waiting_s = (
        max(0.0, getattr(long, name) - getattr(short, name)) for name in ("computing_s", "communicating_s", "waiting_s")
    )
    scale = round_s / (computing_s + communicating_s + waiting_s)
    payloads = max(1, long.payloads - short.payloads)
    return _Played(
        round_s,
        computing_s * scale,
        communicating_s * scale,
        waiting_s * scale,
        staleness=max(0.0, (long.stale - short.stale) / payloads),
        server_share=min(1.0, max(0.0, (long.server_s - short.server_s) / seconds)),
        pushes_a_step=payloads / steps,
        applied=(long.applied - short.applied) / max(1, long.closed - short.closed),
    )
