"""Messages between peers, and records that a node writes to its disk.

All are NamedTuples of plain values, compared and hashed by content. Rounds count from 0. A *stamp* is the
round in which an estimate was adopted; ``NEVER`` if it was not.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

from msgspec import Meta

#: Numbers have 64 bits, unsigned, as in the text protocol; a stamp may be -1.
Number = Annotated[int, Meta(ge=-1)]
#: The stamp of an estimate that no coordinator has proposed.
NEVER = -1


class Sid(NamedTuple):
    """Specification id: the index of the node that posted it, and a number that is never reused."""

    node: Number
    number: Number

    def __str__(self) -> str:
        return f"{self.node}:{self.number}"


class Kind:
    """Kinds of specifications. Only DATA comes from application servers."""

    DATA = 0
    #: The data is the list of members that is valid from the next transaction on.
    MEMBERS = 1
    #: Empty. A node that lost its logs posts it, because the log must grow before the node may vote.
    NOTHING = 2


class Spec(NamedTuple):
    """A transaction specification: opaque data with an id."""

    sid: Sid
    kind: Number
    data: bytes


class Refusal(StrEnum):
    """Reasons to refuse a post: words of the text protocol."""

    OLD = "tid_old"
    NEW = "tid_new"
    OTHER = "other_sid"
    STARTED = "tid_started"
    PROPOSE_ERROR = "propose_error"
    DONE = "sid_done"


# -- between peers: the four phases (consensus.py) -------------------------------------------------


class Collect(NamedTuple):
    """Coordinator to all: send your estimates for ``round``."""

    tid: Number
    round: Number


class Estimate(NamedTuple):
    """Phase 1, to the coordinator of ``round``: the sender's estimate, adopted in round ``stamp``."""

    tid: Number
    round: Number
    sid: Sid | None
    stamp: Number


class Propose(NamedTuple):
    """Phase 2, coordinator to all: adopt this estimate."""

    tid: Number
    round: Number
    sid: Sid


class Ack(NamedTuple):
    """Phase 3, to the coordinator: the proposal of ``round`` is adopted, and on the sender's disk."""

    tid: Number
    round: Number


class Nack(NamedTuple):
    """Answer to an outdated message: the sender is in ``round``, and takes part in no earlier one."""

    tid: Number
    round: Number


class Decide(NamedTuple):
    """Phase 4, to all: the transaction ``tid`` is decided."""

    tid: Number
    sid: Sid


class Wish(NamedTuple):
    """To the coordinator of ``round``: this was posted at the sender's node, for transaction ``tid``."""

    tid: Number
    round: Number
    sid: Sid


# -- between peers: data and catch-up (engine.py) --------------------------------------------------


class Data(NamedTuple):
    """The data of a specification."""

    spec: Spec


class Want(NamedTuple):
    """Request for the data of a specification."""

    sid: Sid


class Ask(NamedTuple):
    """Request for decided transactions, from ``tid`` on."""

    tid: Number


class Entries(NamedTuple):
    """Decided transactions from ``tid`` on; the members of transaction 1; the sender's next tid."""

    tid: Number
    specs: tuple[Spec, ...]
    genesis: bytes
    next_tid: Number


class Status(NamedTuple):
    """The sender is at transaction ``tid``. ``log``: the id of its journal; ``recovered``: the journal
    was begun after the node had lost its logs; a learner does not vote yet."""

    tid: Number
    log: Number
    recovered: bool
    learner: bool


class Census(NamedTuple):
    """A node without its logs asks: where are you now? ``log``: the id of its new journal."""

    log: Number


class Counted(NamedTuple):
    """Answer to Census: the round and the transaction in which the sender is."""

    log: Number
    tid: Number
    round: Number


#: Messages of the consensus on one transaction.
Step = Collect | Estimate | Propose | Ack | Nack | Wish
Message = Step | Decide | Data | Want | Ask | Entries | Status | Census | Counted
#: Positions are codes of the wire format: append only.
MESSAGES: tuple[type[Message], ...] = (
    *(Collect, Estimate, Propose, Ack, Nack, Decide, Wish),
    *(Data, Want, Ask, Entries, Status, Census, Counted),
)


# -- for the disk ----------------------------------------------------------------------------------


class Vote(NamedTuple):
    """To the journal: the promise of this node for ``tid``. The newest is valid."""

    tid: Number
    round: Number
    sid: Sid | None
    stamp: Number


class Held(NamedTuple):
    """To the journal: data that was posted here, or for which this node votes."""

    spec: Spec


class Known(NamedTuple):
    """To the journal: the id of a peer's journal; 0 forgets it."""

    node: Number
    log: Number


class Voter(NamedTuple):
    """To the journal: this node had lost its logs, and votes from now on."""

    tid: Number


class Entry(NamedTuple):
    """To the transaction log: a decided transaction."""

    tid: Number
    spec: Spec


Record = Vote | Held | Known | Voter | Entry
#: Positions are codes of the format on disk: append only.
RECORDS: tuple[type[Record], ...] = (Vote, Held, Known, Voter, Entry)
