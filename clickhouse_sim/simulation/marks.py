"""One mark per kind of event, so that a column of an event log can be read like a score."""

from __future__ import annotations

from enum import Enum


class Mark(Enum):
    """The kinds; the value is the character in `events.log`."""

    CRASH = "!"
    RESTART = "^"
    STOP = "."
    PAUSED = "|"
    RESUMED = "/"
    MESSAGE_LOST = "x"
    CUT = "%"
    HEALED = "="
    MUTED = "m"
    SESSION_OPENED = "o"
    SESSION_EXPIRED = "e"
    DISK_FAULT = "d"
    CLOCK_JUMP = "t"
    ASKED = ">"
    ANSWERED = "<"
    FAILED = "-"
    UNKNOWN = "?"
    LOG_WRITTEN = "+"
    NUMBER_ALLOCATED = "#"
    CONFLICT = "~"
    PULLED = "p"
    STARTED = "("
    ENDED = ")"
    POSTPONED = "z"
    DONE = "*"
    PART_REGISTERED = "P"
    PART_UNREGISTERED = "u"
    LOST = "L"
    CLONED = "C"
    BROKEN = "X"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]

    @property
    def is_fault(self) -> bool:
        """Whether the world, not the protocol, did it."""
        return self in _FAULTS


_MEANINGS = {
    Mark.CRASH: "a replica crashes",
    Mark.RESTART: "a replica starts",
    Mark.STOP: "a replica stops in good order",
    Mark.PAUSED: "a replica is paused",
    Mark.RESUMED: "a paused replica goes on",
    Mark.MESSAGE_LOST: "a message is lost",
    Mark.CUT: "two machines are cut off from each other",
    Mark.HEALED: "a fault of the network ends",
    Mark.MUTED: "the multis of a client do not arrive, or their answers do not",
    Mark.SESSION_OPENED: "a session begins",
    Mark.SESSION_EXPIRED: "a session is over",
    Mark.DISK_FAULT: "a disk fails or lies",
    Mark.CLOCK_JUMP: "a wall clock jumps",
    Mark.ASKED: "a client asks",
    Mark.ANSWERED: "a client is answered",
    Mark.FAILED: "a client is refused",
    Mark.UNKNOWN: "a client does not learn what became of its question",
    Mark.LOG_WRITTEN: "an entry is written to the log",
    Mark.NUMBER_ALLOCATED: "a block number is allocated",
    Mark.CONFLICT: "a multi is refused, because another was earlier",
    Mark.PULLED: "an entry is copied into a replica's queue",
    Mark.STARTED: "an attempt to carry an entry out begins",
    Mark.ENDED: "an attempt ends",
    Mark.POSTPONED: "an entry is put off, with the reason",
    Mark.DONE: "an entry leaves a queue",
    Mark.PART_REGISTERED: "a part gets its znode under a replica",
    Mark.PART_UNREGISTERED: "a part loses it",
    Mark.LOST: "a replica is marked as lost",
    Mark.CLONED: "a replica has cloned another one",
    Mark.BROKEN: "a property does not hold",
}

_FAULTS = frozenset(
    {
        Mark.CRASH,
        Mark.PAUSED,
        Mark.MESSAGE_LOST,
        Mark.CUT,
        Mark.MUTED,
        Mark.SESSION_EXPIRED,
        Mark.DISK_FAULT,
        Mark.CLOCK_JUMP,
    }
)
