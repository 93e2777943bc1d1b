"""The duration of a worker's step on a cluster in the steady state: computing, communicating, waiting.

Synchronous groups exchange by an all-reduce; what lies between groups, or between workers that are groups of one, is
played by the virtual driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from paceline.cost.communication import exposed_exchange_s
from paceline.simulation.durations import Duration, DurationDistribution
from paceline.simulation.group_rounds import GroupRounds, RoundTimes
from paceline.simulation.links import MessageSizes, message_sizes
from paceline.simulation.placement import AT_SERVER, DIVIDED, Placement
from paceline.simulation.steady import BUSY, FEWEST_ROUNDS, UNATTRIBUTED, StepTime, play_steady
from paceline.simulation.virtual_cluster import Network, VirtualCluster
from paceline.strategy.strategy import Strategy

MOST_DRAWN = 4_000_000


@dataclass(frozen=True)
class StepModel:
    """The simulated worker, its strategy and its surroundings."""

    strategy: Strategy
    placement: Placement
    compute_s: float
    """Seconds of a step while the other workers of its machine compute, too."""
    variation: float
    """The standard deviation of a step, as a share of it."""
    message_bytes: int
    """The model's parameters; what is pushed is as large as the strategy's exchange makes it."""
    server_s: float
    """The server's seconds per payload."""
    steps: int = 200
    seed: int = 0
    hidden_behind_s: float | None = None
    """The backward pass, where a group's exchange begins during it; None: it begins when all is computed."""

    def time(self) -> StepTime:
        if not exchanges_by_server(self.strategy, self.placement):
            return self._all_together()
        if acts_alone(self.strategy, self.placement):
            return self._through_server()
        return self._groups_through_server()

    def _all_together(self) -> StepTime:
        """One group whose members all update for themselves."""
        rounds = self.rounds()
        count = max(1, min(max(FEWEST_ROUNDS, self.steps // rounds.steps), MOST_DRAWN // rounds.members))
        for number in range(count):
            rounds(0, number)
        all_steps = rounds.rounds * rounds.members * rounds.steps
        exact = self.compute_s * all_steps / rounds.computing_s  # the mean of what was drawn is a little off
        lasted_s = rounds.seconds / rounds.rounds - rounds.exchange_s
        return StepTime(
            step_s=(lasted_s * exact + rounds.exchange_s) / rounds.steps,
            computing_s=self.compute_s,
            communicating_s=rounds.exchange_s / rounds.steps,
            waiting_s={"straggling": exact * rounds.straggling_s / all_steps},
            applied=1.0 - rounds.backup_workers / rounds.members,
        )

    def _groups_through_server(self) -> StepTime:
        """One member of each group exchanges with the server; the others wait for it."""
        groups = self.strategy.groups or 1
        made: list[GroupRounds] = []

        def compute() -> Duration:
            made.append(self.rounds())
            return made[-1]

        found = self._played(self.of_groups(), groups, max(1, self.steps // self.strategy.push_every), compute)
        rounds = made[0]
        steps = rounds.rounds * rounds.members * rounds.steps
        waits = self._causes(found, groups)
        waits["straggling"] = waits.get("straggling", 0.0) + rounds.straggling_s / rounds.rounds / rounds.members
        return replace(
            found,
            step_s=found.step_s / rounds.steps,
            computing_s=rounds.computing_s / steps,
            communicating_s=(found.communicating_s + rounds.exchange_s) / rounds.steps,
            waiting_s={what: seconds / rounds.steps for what, seconds in waits.items()},
            link_share=self._link_share(found, groups),
        )

    def _through_server(self) -> StepTime:
        """Every worker exchanges with the server."""
        workers = self.placement.workers
        found = self._played(self.strategy, workers, self.steps, self.spread)
        found = replace(found, waiting_s=self._causes(found, workers), link_share=self._link_share(found, workers))
        if max(found.server_share, found.link_share) > BUSY:
            return found
        off_s = found.computing_s - self.compute_s  # the mean of what was drawn is a little off
        return replace(found, step_s=found.step_s - off_s, computing_s=found.computing_s - off_s)

    def spread(self) -> DurationDistribution:
        """The distribution of a step's duration."""
        if not self.variation:
            return DurationDistribution("constant", (self.compute_s,))
        return DurationDistribution("gamma", (self.variation**-2, self.compute_s * self.variation**2))

    def of_groups(self) -> Strategy:
        """The strategy among groups, each of them as one worker."""
        return replace(self.strategy, groups=None, fetch_every=1, push_every=1, backup_workers=0)

    def rounds(self, watch: Callable[[int, RoundTimes], None] | None = None) -> GroupRounds:
        strategy = self.strategy
        members = self.placement.workers // (strategy.groups or 1)
        return GroupRounds(
            members, strategy.push_every, self.compute_s, self.variation, self._all_reduce_s(members),
            backup_workers=strategy.backup_workers, seed=self.seed, watch=watch,
        )  # fmt: skip

    def cluster(self, compute: DurationDistribution | Duration) -> VirtualCluster:
        server = DurationDistribution("constant", (self.server_s,)) if self.server_s else None
        return VirtualCluster(compute=compute, server=server, network=self.network())

    @property
    def messages(self) -> MessageSizes:
        return message_sizes(self.strategy, self.message_bytes)

    def network(self) -> Network:
        """Between a worker, or a group's first, and the server."""
        return self.placement.exchange(self.messages.fetch_bytes, self.messages.push_bytes)

    def _all_reduce_s(self, members: int) -> float:
        """The time that a group's exchange adds to its slowest member's step."""
        exchange = self.strategy.make_exchange
        if self.strategy.overlap_steps:
            hidden_s = min(self.strategy.overlap_steps, self.strategy.push_every) * self.compute_s
            return max(0.0, group_exchange_s(self.strategy, self.placement, self.message_bytes, members) - hidden_s)
        if self.hidden_behind_s is None or not exchange.sums_gradients or self.strategy.push_every != 1:
            return group_exchange_s(self.strategy, self.placement, self.message_bytes, members)
        return exposed_exchange_s(
            lambda size_bytes: self.placement.all_reduce_s(size_bytes, members),
            self.messages.push_bytes,
            self.hidden_behind_s,
        )

    def _played(
        self, strategy: Strategy, workers: int, steps: int, compute: Callable[[], DurationDistribution | Duration]
    ) -> StepTime:
        return play_steady(strategy, workers, steps, lambda: self.cluster(compute()), self.message_bytes, self.seed)

    def _causes(self, found: StepTime, senders: int) -> dict[str, float]:
        """The causes of waiting, besides the worker's own messages: a busy server, or slower workers."""
        strategy, waiting_s = self.strategy, found.waiting_s[UNATTRIBUTED]
        serving_s = min(waiting_s, found.server_share * found.step_s)
        together = strategy.groups is not None and acts_alone(strategy, self.placement)
        if together or strategy.staleness_bound is not None or strategy.softsync_n is not None:
            return {"server": serving_s, "straggling": waiting_s - serving_s}
        return {"network" if self._link_share(found, senders) > found.server_share else "server": waiting_s}

    def _link_share(self, found: StepTime, senders: int) -> float:
        network, messages = self.network(), self.messages
        if not network.shared:
            return 0.0
        out_bytes = messages.fetch_bytes * fetches_per_step(self.strategy)
        in_bytes = messages.push_bytes * found.pushes_per_step
        return senders * max(in_bytes, out_bytes) / network.bandwidth / found.step_s


def fetches_per_step(strategy: Strategy) -> float:
    """How often a worker fetches the parameters, per step on average."""
    exchange = strategy.make_exchange
    extra = 1 / strategy.push_every if exchange.fetch_last else 0.0
    if exchange.fetch_first:
        return 1 / min(strategy.push_every, strategy.fetch_every or strategy.push_every) + extra
    return (1 / strategy.fetch_every if strategy.fetch_every else 0.0) + extra


def group_exchange_s(strategy: Strategy, placement: Placement, model_bytes: int, members: int) -> float:
    """The time until every member of a group has the mean of all payloads.

    Payloads that are vectors are added up by an all-reduce. Encoded ones are gathered by every member, or decoded first
    and then added up, whichever is faster.
    """
    fetch_bytes, push_bytes, _ = message_sizes(strategy, model_bytes)
    if placement.averaging == DIVIDED:
        return placement.divided_average_s(push_bytes, members)
    if strategy.make_exchange.is_dense:
        return placement.all_reduce_s(push_bytes, members)
    return min(placement.all_gather_s(push_bytes, members), placement.all_reduce_s(fetch_bytes, members))


def acts_alone(strategy: Strategy, placement: Placement) -> bool:
    """Whether every worker exchanges for itself: processes of one machine do, since they share its memory."""
    together = placement.together and not placement.on_gpu
    return strategy.groups is None or together or placement.averaging == AT_SERVER


def exchanges_by_server(strategy: Strategy, placement: Placement) -> bool:
    """Whether there is a server; one group over several GPUs or machines may add up its gradients without."""
    if strategy.groups == 1:
        return placement.workers > 1 and (placement.averaging == DIVIDED or acts_alone(strategy, placement))
    return True
