"""The names of the shared words: 8 bytes each, aligned, so that every one is read and written in one go.

Each word has one writer, or one at a time: who holds the pen. What it announces (a payload, a task, a version) is
written before it; x86-64 keeps that order. The classes are plain, since an enumeration's members are slow to look up
and these are, many times a step.
"""

from __future__ import annotations

LINE = 8
"""Words of a cache line: two processes that write into one slow each other down."""


class Control:
    """Of the whole run."""

    VERSION = 0
    """The newest whole parameters; version v is in buffer v % 2. Writing this word is what makes an update."""
    WRITING = LINE
    """The version being written; the buffer of the one two before it is no longer to be trusted."""
    SERVER_READY = 2 * LINE
    SERVER_BEAT = 2 * LINE + 1
    """When the server was last seen at work, in nanoseconds of the monotonic clock."""
    SERVER_NS = 2 * LINE + 2
    """Time spent in applying updates."""
    FINISHED = 2 * LINE + 3
    EPOCHS_DONE = 2 * LINE + 4
    RETURNED = 2 * LINE + 5
    """Batches given out again, in all."""
    REFUSALS = 2 * LINE + 6
    """Refused payloads, in all; the first of them are listed."""
    REFUSED_IN_A_ROW = 2 * LINE + 7
    SERVER_LIFE = 3 * LINE
    """Counts the server's lives; written by the launcher, as are those below."""
    EPOCHS_TAKEN = 3 * LINE + 1
    """Epochs whose parameters the launcher has copied."""
    DRAFT = 4 * LINE
    """A version that was written into a draft, and whose: not carried over yet, if it is the newest; 0: it is."""

    SUMS = 5 * LINE
    """The last sum that members of a group were to make among themselves; written by the server, as are those below."""
    SUMS_MADE = 5 * LINE + 1
    SUMS_GIVEN_UP = 5 * LINE + 2


CONTROL_WORDS = 6 * LINE


class Of:
    """Of one worker. Lives are counted from 1."""

    LIFE = 0
    """The process that has the slot; written by the launcher."""
    DEAD = 1
    """The last life that is known to have ended; written by the launcher."""
    GIVEN = LINE
    """The last task given; written by the server."""
    STEPS_SINCE_FETCH = LINE + 1
    ACKNOWLEDGED = LINE + 2
    """Of payload 0, then of payload 1: the sequence that need not be kept any longer."""
    SUM = LINE + 4
    """The sum that the last task given is part of; 0: of none."""
    TOGETHER_SINCE = LINE + 5
    """The first sum of these lives of its members: from then on they are connected."""
    JOINED = 2 * LINE
    """The life that is ready for tasks; written by the worker, as are those below."""
    BEAT = 2 * LINE + 1
    TASKS = 2 * LINE + 2
    """Tasks finished by this life."""
    WAITING_NS = 2 * LINE + 3
    COMMUNICATION_NS = 2 * LINE + 4
    STEPS = 2 * LINE + 5
    RETRIES = 2 * LINE + 6
    """Pulls that had to begin again because the server was faster."""
    WANTED = 2 * LINE + 7
    """How many tasks it wants to have before it."""
    PAYLOAD = 3 * LINE
    """Two lines, one for each payload."""
    ENTERED = 5 * LINE
    """The last sum that it has a payload for."""


class Payload:
    """Of one payload, within its line."""

    READY = 0
    """The sequence of the task whose payload is whole."""
    SAMPLES = 1
    PULLED = 2
    FETCHES = 3
    SUMMED = 4
    """The sum that it is in, which lies with the first of the group; 0: the payload lies in its place by itself."""


SLOT_WORDS = 6 * LINE


class Task:
    """Of one entry of a mailbox; batches and fetches follow."""

    LIFE = 0
    SEQUENCE = 1
    """Written last: an entry counts when its life and sequence are those that are waited for."""
    EPOCH = 2
    VERSION = 3
    """-1: the newest."""
    BATCHES = 4
    FETCHES = 5


TASK_WORDS = 6


class Made:
    """Of one update, where workers make their own."""

    WORKER = 0
    SEQUENCE = 1
    PULLED = 2
    EPOCHS = 3
    """Of an even and of an odd epoch: its number and 1."""
    CLOSED = 5
    """How many of their batches are closed after the update."""


MADE_WORDS = LINE


class Shard:
    """Of one of several shards of the server, a line each; the server itself is the first."""

    ORDER = 0
    """Only in the first line: which order is to be carried out, 0 while it is written. Each has another number."""
    DONE = 1
    """The order whose piece was made last; written by the shard, as are those below."""
    BEAT = 2
    READY = 3
    """The life that carries out orders."""
