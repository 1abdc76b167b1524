"""What survives a crash: the state with which an engine starts, made of what is on disk."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from neo.transactor.members import Members
from neo.transactor.messages import Held, Known, Record, Sid, Spec, Vote, Voter

#: The origin of the transaction before the first.
NOBODY = Sid(-1, 0)


class LogEnd(NamedTuple):
    """Where the transaction log ends, and whose it is."""

    #: The next transaction, and the specification of the last.
    tid: int
    last: Sid
    #: The members of transaction 1, of ``tid``, and the indices of those of the one before.
    genesis: Members
    members: Members
    former: tuple[int, ...]


def empty_log(genesis: Members) -> LogEnd:
    return LogEnd(1, NOBODY, genesis, genesis, genesis.nodes)


class Begun(IntEnum):
    """How a journal was begun."""

    #: By a node of a new cluster: nothing happened before.
    FRESH = 0
    #: By a new member of a running cluster: it never voted, and has to learn who the first members were.
    JOINED = 1
    #: By a node that lost its logs: it may have voted, and has to learn that too.
    RECOVERED = 2


class Durable(NamedTuple):
    """What a node finds on its disk when it starts."""

    #: The name of the journal: a random number of 32 bits, other than 0.
    log: int
    begun: Begun
    #: It was recovered, and must not vote yet.
    learner: bool
    end: LogEnd
    votes: dict[int, Vote]
    held: dict[Sid, Spec]
    known: dict[int, int]
    #: Numbers of its own specifications up to this one may have been used.
    number: int
    #: The configuration names no other node.
    alone: bool = False


def restore(log: int, begun: Begun, number: int, end: LogEnd, journal: Iterable[Record]) -> Durable:
    """``begun`` and ``number`` are what the journal was begun with. Numbers of this node's
    specifications have the journal's name in their upper half: never used twice, even after a loss."""
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
