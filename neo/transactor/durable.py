"""The durable state with which an engine starts, restored from both logs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from neo.transactor.members import Members
from neo.transactor.messages import Held, Kind, Known, Record, Sid, Spec, Vote, Voter

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

    def after(self, spec: Spec) -> LogEnd:
        """Return the end of the log after one more transaction."""
        members = Members.decode(spec.data) if spec.kind == Kind.MEMBERS else self.members
        return LogEnd(self.tid + 1, spec.sid, self.genesis, members, self.members.nodes)


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
    alone: bool


class JournalState:
    """The valid content of a journal: what its records say together.

    The upper half of an own sid's number is the id of the journal, so that no number is used twice, even
    after the journal was lost.
    """

    def __init__(self, log: int, number: int, records: Iterable[Record] = ()) -> None:
        """``log`` and ``number`` come from the head of the journal."""
        self._log = log
        self.number = number
        self.votes: dict[int, Vote] = {}
        self.known: dict[int, Known] = {}
        self.voter: Voter | None = None
        self._held: dict[Sid, Held] = {}
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        if isinstance(record, Vote):
            self.votes[record.tid] = record
        elif isinstance(record, Held):
            sid = record.spec.sid
            self._held[sid] = record
            if sid.number >> 32 == self._log:
                self.number = max(self.number, sid.number)
        elif isinstance(record, Known):
            self.known[record.node] = record
        elif isinstance(record, Voter):
            self.voter = record

    def decided(self, tid: int) -> None:
        """Forget promises for transactions up to this one."""
        self.votes = {t: vote for t, vote in self.votes.items() if t > tid}

    def held(self) -> list[Held]:
        """Return the data for which there are promises, and forget the rest."""
        needed = {vote.sid for vote in self.votes.values()}
        self._held = {sid: record for sid, record in self._held.items() if sid in needed}
        return list(self._held.values())

    def records(self) -> list[Record]:
        """Return the records of a compacted journal."""
        voter = [self.voter] if self.voter is not None else []
        return [*voter, *self.known.values(), *self.held(), *self.votes.values()]

    def durable(self, begun: Begun, end: LogEnd, alone: bool = False) -> Durable:
        """Return the state of a node whose transaction log ends at ``end``. ``begun`` comes from the head
        of the journal."""
        self.decided(end.tid - 1)
        return Durable(
            self._log,
            begun,
            begun is Begun.RECOVERED and self.voter is None,
            end,
            self.votes,
            {record.spec.sid: record.spec for record in self.held()},
            {node: known.log for node, known in self.known.items() if known.log},
            self.number,
            alone,
        )
