"""The fields of shared memory: words of 8 bytes, aligned, so that each is read and written at once.

Each word has one writer, or one at a time: the holder of the writer lock. What a word announces (a payload, a task, a
version) is written before it; x86-64 keeps that order, and elsewhere the driver refuses to start. The classes are
plain, since members of an enumeration are slow to look up and these are read many times per step.
"""

from __future__ import annotations

LINE = 8
"""Words of a cache line: two processes that write into one line slow each other down."""


class ControlField:
    """Words of the whole run."""

    PUBLISHED = 0
    """How often something was published: header PUBLISHED % 2 is the newest. Writing this word is what commits."""
    WRITING = LINE
    """The number of the publication being written; above PUBLISHED when its writer died before it was whole."""
    SNAPSHOT_WRITING = LINE + 1
    """The number of the snapshot being written."""
    SERVER_READY = 2 * LINE
    """The server's incarnation that serves; written by the server, as are those below."""
    SERVER_BEAT = 2 * LINE + 1
    """When the server was last seen at work, in nanoseconds of the monotonic clock."""
    FINISHED = 2 * LINE + 2
    EPOCHS_DONE = 2 * LINE + 3
    RETURNED = 2 * LINE + 4
    """Batches given out again, in total."""
    REFUSALS = 2 * LINE + 5
    """Refused payloads in total; the first of them are listed."""
    UPDATE_NS = 3 * LINE
    """Time spent in making updates; written by the holder of the writer lock."""
    EPOCH_KEPT = 3 * LINE + 1
    """Epochs whose parameters were kept by the worker that finished them."""
    EPOCH_VERSION = 3 * LINE + 2
    """Two words, for even and odd epochs: the version of the epoch's parameters."""
    EPOCHS_TAKEN = 4 * LINE
    """Epochs whose parameters the launcher has copied; written by the launcher."""


CONTROL_WORDS = 5 * LINE


class SlotField:
    """Words of one worker. Incarnations count its processes from 1."""

    INCARNATION = 0
    """The process that has the slot; written by the launcher."""
    DEAD = 1
    """The last incarnation that is known to have ended; written by the launcher."""
    GIVEN = LINE
    """The last task given; written by the server."""
    STEPS_SINCE_FETCH = LINE + 1
    RELEASED = LINE + 2
    """Two words, for payload 0 and 1: the sequence that need not be kept any longer."""
    JOINED = 2 * LINE
    """The incarnation that is ready for tasks; written by the worker, as are those below."""
    BEAT = 2 * LINE + 1
    """When it last finished a step or looked for something to do, in nanoseconds of the monotonic clock."""
    TASKS = 2 * LINE + 2
    """Tasks finished by this incarnation."""
    STEPS = 2 * LINE + 3
    WAITING_NS = 2 * LINE + 4
    COMMUNICATION_NS = 2 * LINE + 5
    WANTED = 2 * LINE + 6
    """How many tasks it wants to have in advance."""
    PUSHED = 2 * LINE + 7
    """Where workers commit: the sequence of its payload in the group's round under way; 0: it has none."""
    PAYLOAD = 3 * LINE
    """Two lines, one for each payload."""


class PayloadField:
    """Words of one payload, within its line."""

    READY = 0
    """The sequence of the task whose payload is whole."""
    SAMPLES = 1
    PULLED = 2
    FETCHES = 3
    FINITE = 4
    AVERAGED = 5
    """1: it is the mean of its group's payloads; -1: it is part of another member's; 0: it is its worker's own."""


SLOT_WORDS = 5 * LINE


class HeaderField:
    """Words of a header: all that belongs to one publication, besides parameters and states."""

    VERSION = 0
    """How many updates there are."""
    EVENTS = 1
    """How many rows of the commit log were written in total."""
    RECORDED = 2
    """Where the record of events ends."""
    EPOCHS = 3
    """Two words, for the open even and odd epoch: its number + 1."""
    CLOSED = 5
    """Two words: how many of their batches are closed."""
    SNAPSHOT = 7
    """How many snapshots of parameters and optimizer's state were made; the newest is in buffer SNAPSHOT % 2."""
    SNAPSHOT_VERSION = 8
    """The version that it is of."""
    ROUNDS = 9
    """A word for each group: rounds committed. Then one for each: which buffer has the state of its correction.
    Then how many payloads had each staleness."""


class GroupField:
    """Words of one group, a line each."""

    PLANNED = 0
    """Rounds that tasks were given for; written by the server."""
    SNAPSHOT_ROUND = 1
    """The round that the group's snapshot of the parameters is for, + 1; written by the holder of the writer lock."""
    SNAPSHOT_VERSION = 2
    FIRST_OPEN = 3
    """The first round that is not over, where tasks wait for the round before theirs; written by the server."""
