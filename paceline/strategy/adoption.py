"""A new coordinator takes over the tasks of one that died: those workers have, or whose payloads are ready."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from paceline.strategy.group import Group, Round
from paceline.strategy.instructions import Compute
from paceline.strategy.rounds import Rounds


def adopt(
    rounds: Rounds, tasks: Collection[Compute], alive: Collection[int], steps_since_fetch: Mapping[int, int]
) -> None:
    """Registers the tasks; parts of their rounds that no worker has are added."""
    for worker in alive:
        rounds.enter(worker)
    for task in sorted(tasks):  # of each worker in the order of its tasks
        member = rounds.expect(task.worker)
        member.sequence = max(member.sequence, task.sequence)
        member.tasks[task.sequence] = task
        rounds.outstanding += 1
        rounds.batches.open_until(task.epoch)
        rounds.batches.take_these(task.epoch, task.batches)
    for worker, steps in steps_since_fetch.items():
        rounds.members[worker].steps = steps
    if rounds.alone:
        return
    for group in rounds.groups.values():
        mine = [task for task in tasks if rounds.members[task.worker].group is group]
        for number in sorted({task.round for task in mine if task.round is not None}):
            _adopt_round(rounds, group, [task for task in mine if task.round == number])


def _adopt_round(rounds: Rounds, group: Group, tasks: list[Compute]) -> None:
    assert tasks[0].round is not None
    one = Round(tasks[0].round, tasks[0].epoch, parts=len(tasks))
    one.open.update((task.worker, task.sequence) for task in tasks)
    group.rounds.append(one)
    group.planned = max(group.planned, one.number + 1)
    if rounds.strategy.fragments is not None:
        return  # what is missing is done in a later round
    missing = group.workers[len(tasks) :]
    if rounds.batches.full_pass_per_worker:
        there = {rounds.batches.owner(task.batches[0]) for task in tasks}
        missing = [worker for worker in group.workers if worker not in there]
    wanted = min(len(missing), tasks[0].parts - len(tasks))
    turn = tasks[0].batches[0] // rounds.batches.per_turn
    rounds.add_parts(group, one, missing[:wanted], sum(len(task.batches) for task in tasks), turn)
