"""The shortest way through the most frequent task: fetch, one batch, its gradient straight into the payload.

It makes the operations that `Learner` makes, in their order, and leaves out what other strategies and networks need;
for a small network that is a fifth of a step.
"""

from __future__ import annotations

from torch import Tensor

from paceline.step.chain import Chain
from paceline.step.tally import Tally
from paceline.strategy.learner import Learner


class StraightWay:
    def __init__(self, learner: Learner, payloads: list[Tensor], chains: list[Chain]) -> None:
        self.payloads = payloads
        self.chains = chains
        """One for each payload."""
        self.source, self.parts = learner.source, learner.parts

    @staticmethod
    def of(learner: Learner, payloads: list[Tensor]) -> StraightWay | None:
        """None where a task needs more than that. The payloads are bound to the learner already."""
        s = learner.strategy
        if s.exchange != "gradient" or s.fetch_every != 1 or s.push_every != 1:
            return None
        if len(learner.phases) != 1 or learner.layout.buffers or learner.local.device.type != "cpu":
            return None
        chains = [learner.bound(payload)[0].chain for payload in payloads]
        found = [chain for chain in chains if chain is not None]
        return StraightWay(learner, payloads, found) if len(found) == len(payloads) else None

    def gradient(self, epoch: int, number: int, place: int, tally: Tally) -> int:
        """Into payload `place`, with the parameters as they are; the samples, or 0 for a batch that is not whole.

        To be called in inference mode.
        """
        batch = self.source.batch(epoch, number)
        chain = self.chains[place]
        if len(batch[1]) != chain.batch:
            return 0
        if self.parts.random:
            worker, position = self.source.position(number)
            self.parts.seed(epoch, position, worker)
        outcome = chain.gradient(batch)
        tally.add(outcome.loss, outcome.output, batch[1])
        return chain.batch
