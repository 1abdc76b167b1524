"""The durable state with which an engine starts, restored from both logs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from neo.transactor.members import Members
from neo.transactor.messages import Held, Known, Record, Sid, Spec, Vote, Voter

#: The sid "before" transaction 1.
NO_SID = Sid(-1, 0)


class LogEnd(NamedTuple):
    """The position and the membership at the end of the transaction log."""

    #: The next transaction, and the sid of the last one.
    tid: int
    last: Sid
    #: The members of transaction 1 and of ``tid``; the indices of the members of ``tid - 1``.
    genesis: Members
    members: Members
    former: tuple[int, ...]


def empty_log(genesis: Members) -> LogEnd:
    return LogEnd(1, NO_SID, genesis, genesis, genesis.nodes)


class Begun(IntEnum):
    """How a journal was begun."""

    #: By a node of a new cluster: there is no earlier state.
    FRESH = 0
    #: By a new member of a running cluster: it never voted; it has to learn the first members.
    JOINED = 1
    #: By a node that lost its logs: it may have voted; it has to learn that, too.
    RECOVERED = 2


class Durable(NamedTuple):
    """The state found on disk at start."""

    #: The id of the journal: a random number of 32 bits, other than 0.
    log: int
    begun: Begun
    #: The node was recovered, and must not vote yet.
    learner: bool
    end: LogEnd
    votes: dict[int, Vote]
    held: dict[Sid, Spec]
    known: dict[int, int]
    #: Upper bound of the numbers that this node may have used in its own sids.
    number: int
    #: The configuration names no other node.
    alone: bool = False


def restore(log: int, begun: Begun, number: int, end: LogEnd, journal: Iterable[Record]) -> Durable:
    """Replay a journal. ``begun`` and ``number`` come from its head.

    The upper half of a sid's number is the id of the journal, so that no number is used twice, even
    after the journal was lost.
    """
    learner = begun is Begun.RECOVERED
    votes: dict[int, Vote] = {}
    held: dict[Sid, Spec] = {}
    known: dict[int, int] = {}
    for record in journal:
        if isinstance(record, Vote):
            votes[record.tid] = record
        elif isinstance(record, Held):
            held[record.spec.sid] = record.spec
            if record.spec.sid.number >> 32 == log:
                number = max(number, record.spec.sid.number)
        elif isinstance(record, Known):
            known[record.node] = record.log
        elif isinstance(record, Voter):
            learner = False
    votes = {tid: vote for tid, vote in votes.items() if tid >= end.tid}
    needed = {vote.sid for vote in votes.values()}
    return Durable(
        log,
        begun,
        learner,
        end,
        votes,
        {sid: spec for sid, spec in held.items() if sid in needed},
        {node: name for node, name in known.items() if name},
        number,
    )
