"""What peers say to each other, and what a node writes down before it says so.

All are NamedTuples of plain values, compared and hashed by content. ``round`` counts from 0. A *stamp* is
the round in which an estimate was adopted, ``NEVER`` if it was not.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

#: The stamp of an estimate that no coordinator proposed.
NEVER = -1


class Sid(NamedTuple):
    """Specification id: the index of the node where it was posted, and a number never used again."""

    node: int
    number: int

    def __str__(self) -> str:
        return f"{self.node}:{self.number}"


class Kind:
    """Of a specification; only the first kind comes from application servers."""

    DATA = 0
    #: The data is the list of members that holds from the next transaction on.
    MEMBERS = 1
    #: Of a node that comes back without its logs: the log must grow before it may vote.
    NOTHING = 2


class Spec(NamedTuple):
    """A transaction specification: opaque data under its id."""

    sid: Sid
    kind: int
    data: bytes


class Refusal(StrEnum):
    """Why a post is not possible: words of the text protocol."""

    OLD = "tid_old"
    NEW = "tid_new"
    OTHER = "other_sid"
    STARTED = "tid_started"
    PROPOSE_ERROR = "propose_error"
    DONE = "sid_done"


# -- between peers: the four phases (consensus.py) -------------------------------------------------


class Collect(NamedTuple):
    """Coordinator to all: round ``round`` is mine, send me your estimates."""

    tid: int
    round: int


class Estimate(NamedTuple):
    """Phase 1, to the coordinator of ``round``: what I would decide, adopted in round ``stamp``."""

    tid: int
    round: int
    sid: Sid | None
    stamp: int


class Propose(NamedTuple):
    """Phase 2, coordinator to all: adopt this."""

    tid: int
    round: int
    sid: Sid


class Ack(NamedTuple):
    """Phase 3, to the coordinator: I have adopted the proposal of ``round``, on my disk."""

    tid: int
    round: int


class Nack(NamedTuple):
    """Instead of an answer: I am in ``round``, and take part in no earlier one."""

    tid: int
    round: int


class Decide(NamedTuple):
    """Phase 4, to all: this is transaction ``tid``."""

    tid: int
    sid: Sid


class Wish(NamedTuple):
    """To the coordinator of ``round``: somebody posted this at my place, for transaction ``tid``."""

    tid: int
    round: int
    sid: Sid


# -- between peers: data and catching up (engine.py) -----------------------------------------------


class Data(NamedTuple):
    """A specification on its own."""

    spec: Spec


class Want(NamedTuple):
    """Send me the data of this specification."""

    sid: Sid


class Ask(NamedTuple):
    """Send me what was decided, from ``tid`` on."""

    tid: int


class Entries(NamedTuple):
    """Decided transactions ``tid``, ``tid + 1``, …; the members of transaction 1; the sender's next."""

    tid: int
    specs: tuple[Spec, ...]
    genesis: bytes
    next_tid: int


class Status(NamedTuple):
    """I am at transaction ``tid``. ``log`` names my journal; ``recovered`` says that it was begun when
    the node had lost its logs; a learner does not vote yet."""

    tid: int
    log: int
    recovered: bool
    learner: bool


class Census(NamedTuple):
    """A node without its logs: where are you, after having read this? ``log`` names its new journal."""

    log: int


class Counted(NamedTuple):
    """Answer to Census: in this round of transaction ``tid``."""

    log: int
    tid: int
    round: int


#: Those about one transaction that is being agreed on.
Step = Collect | Estimate | Propose | Ack | Nack | Wish
Message = Step | Decide | Data | Want | Ask | Entries | Status | Census | Counted


# -- for the disk ----------------------------------------------------------------------------------


class Vote(NamedTuple):
    """To the journal: the promise of this node for ``tid``. The newest counts."""

    tid: int
    round: int
    sid: Sid | None
    stamp: int


class Held(NamedTuple):
    """To the journal: data for which this node votes, or that was posted here."""

    spec: Spec


class Known(NamedTuple):
    """To the journal: the name of a peer's journal; 0 forgets it."""

    node: int
    log: int


class Voter(NamedTuple):
    """To the journal: this node, once without its logs, votes from now on."""

    tid: int


class Entry(NamedTuple):
    """To the transaction log: what was decided."""

    tid: int
    spec: Spec


Record = Vote | Held | Known | Voter | Entry
