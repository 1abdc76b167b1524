"""Catch-up: how an engine learns decided transactions from its peers, and sends them to others.

A node that lags asks one peer that is ahead. Each answer has as many transactions as fit; the node asks
again until nothing is missing. A node that lost its logs catches up likewise, and abstains from voting
until :mod:`neo.transactor.learner` permits it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from neo.transactor.consensus import Process
from neo.transactor.detector import Detector
from neo.transactor.durable import Begun, Durable
from neo.transactor.learner import ALL_NEEDED, Learner
from neo.transactor.members import Members
from neo.transactor.messages import (
    NEVER,
    Ask,
    Census,
    Counted,
    Data,
    Entries,
    Kind,
    Known,
    Message,
    Sid,
    Spec,
    Status,
    Vote,
    Voter,
    Wish,
)
from neo.transactor.outbox import Outbox

#: Bounds of one Entries message: number of transactions, and their bytes, approximately.
CATCH_UP_COUNT = 64
CATCH_UP_BYTES = 128 * 1024
#: The index of the first guest (:mod:`neo.transactor.node`); each further one has the next lower index.
GUEST = -2


class Peers:
    """What a node knows of its peers besides their votes: their positions in the log, and their journals.

    A journal has a random id. A peer that comes back with another journal has forgotten its promises. It
    is a *stranger*, whose votes do not count, unless the journal was begun as that of a learner
    (:mod:`neo.transactor.learner`).
    """

    def __init__(self, known: dict[int, int]) -> None:
        #: The ids of their journals.
        self.known = known
        self.strangers: set[int] = set()
        #: Peers that say that they do not vote.
        self.learners: set[int] = set()
        #: The next transaction of each peer, as it said last.
        self.tids: dict[int, int] = {}
        self._asked = 0

    def advance(self, q: int, tid: int) -> None:
        """Note that peer q is at transaction ``tid``, or later."""
        if tid > self.tids.get(q, 0):
            self.tids[q] = tid

    def status(self, q: int, m: Status) -> bool:
        """Handle a status. Return whether the id of the journal is new, and must be recorded."""
        self.tids[q] = m.tid
        (self.learners.add if m.learner else self.learners.discard)(q)
        known = self.known.get(q)
        if known == m.log:
            self.strangers.discard(q)
            return False
        if known is not None and not m.recovered:
            self.strangers.add(q)
            return False
        self.strangers.discard(q)
        self.known[q] = m.log
        return True

    def forget(self, q: int) -> None:
        self.known.pop(q, None)
        self.tids.pop(q, None)
        self.strangers.discard(q)
        self.learners.discard(q)

    def ahead(self, tid: int, suspected: set[int]) -> int:
        """Return a peer that knows transaction ``tid``; one that is not suspected, if possible."""
        ahead = sorted(q for q, theirs in self.tids.items() if theirs > tid)
        alive = [q for q in ahead if q not in suspected] or ahead
        self._asked += 1
        return alive[self._asked % len(alive)]


class LogReader(Protocol):
    def read(self, tid: int, count: int, size: int) -> list[Spec]:
        """Return decided transactions from ``tid`` on: at most ``count``, and of about ``size`` bytes,
        but at least one. Appended records can be read before they are synced."""


class ReplicatedLog(Protocol):
    """What catch-up needs of the engine."""

    name: str
    tid: int
    genesis: Members
    members: Members
    former: tuple[int, ...]
    process: Process | None
    #: Recorded promises for transactions that have not begun here.
    votes: dict[int, Vote]

    @property
    def me(self) -> int: ...

    @property
    def lags(self) -> bool: ...

    def append(self, spec: Spec) -> None: ...

    def begin(self) -> None:
        """Begin the consensus again: members, or the right to vote, changed within a transaction."""

    def new_sid(self) -> Sid: ...

    def hold(self, spec: Spec) -> None: ...

    def journal(self, sid: Sid) -> None: ...


class CatchUp:
    def __init__(
        self,
        engine: ReplicatedLog,
        outbox: Outbox,
        peers: Peers,
        detector: Detector,
        reader: LogReader,
        durable: Durable,
        warn: Callable[[str], None],
    ) -> None:
        self.learner = Learner(durable.alone) if durable.learner else None
        #: The first members are unknown: the configuration may be newer than the log.
        new = durable.begun is Begun.JOINED or durable.learner
        self.joins = new and engine.tid == 1 and len(engine.members.all) > 1
        #: The transaction in which a learner votes already, though it may have voted in later ones.
        self.trial = NEVER
        #: The round for which a learner sends its wishes.
        self.wish_round = 0
        self._engine = engine
        self._outbox = outbox
        self._peers = peers
        self._detector = detector
        self._reader = reader
        self._log_id = durable.log
        self._warn = warn
        self._empty: Spec | None = None

        self.handlers: dict[type, Callable[..., None]] = {
            Ask: self.on_ask,
            Entries: self.on_entries,
            Status: self.on_status,
            Census: self.on_census,
            Counted: self.on_counted,
        }

    @property
    def learns(self) -> bool:
        """Whether this node lost its logs and must not vote in the next transaction."""
        return self.learner is not None and self.trial != self._engine.tid

    @property
    def needed(self) -> bool:
        return self.joins or self.learner is not None or self._engine.lags

    def tick(self) -> None:
        """Repeat the requests that have no answer yet. Called every few ticks."""
        if self.joins:
            others = [q for q in self._engine.members.nodes if q != self._engine.me]
            self._outbox.aside_all(others, Ask(1))
        elif self._engine.lags:
            peer = self._peers.ahead(self._engine.tid, self._detector.suspected)
            self._outbox.aside(peer, Ask(self._engine.tid))
        if self.learner is not None:
            self._learn(self.learner)

    # -- identity of journals ----------------------------------------------------------------------

    def on_status(self, q: int, m: Status) -> None:
        stranger = q in self._peers.strangers
        if self._peers.status(q, m):
            self._outbox.record(Known(q, m.log))
        elif q in self._peers.strangers and not stranger:
            member = self._engine.members.at(q)
            name = member.name if member else str(q)
            self._warn(
                f"{name} came back with another journal, and may have forgotten what it promised: its"
                " votes do not count. Start it with --recover; or, if it never voted for what is not"
                f" decided yet, give the command reset_node {name} here"
            )

    # -- asking and answering ----------------------------------------------------------------------

    def on_guest(self, q: int, m: Message) -> None:
        """Handle a message of a peer that is no member in this node's log; it may be ahead."""
        if isinstance(m, Status):
            self._peers.advance(q, m.tid)
        elif isinstance(m, Entries):
            self.on_entries(q, m)

    def on_ask(self, q: int, m: Ask) -> None:
        engine = self._engine
        specs: list[Spec] = []
        if self.joins:
            return
        if 0 < m.tid < engine.tid:
            specs = self._reader.read(m.tid, CATCH_UP_COUNT, CATCH_UP_BYTES)
        genesis = engine.genesis.encode()
        # Send after the sync: a node that is the only member is a majority on its own.
        self._outbox.send(q, Entries(m.tid, tuple(specs), genesis, engine.tid))

    def on_entries(self, q: int, m: Entries) -> None:
        engine = self._engine
        if self.joins:
            self._begin_with(Members.decode(m.genesis))
        self._peers.tids[q] = m.next_tid
        before = engine.tid
        for tid, spec in enumerate(m.specs, m.tid):
            if tid == engine.tid:
                engine.append(spec)
        if before < engine.tid < m.next_tid:
            self._outbox.aside(q, Ask(engine.tid))

    def _begin_with(self, genesis: Members) -> None:
        """Adopt the first members that a peer has told."""
        engine = self._engine
        self.joins = False
        if genesis != engine.genesis:
            engine.genesis = engine.members = genesis
            engine.former = genesis.nodes
        self.consider_voting()
        engine.begin()

    # -- a node that lost its logs -----------------------------------------------------------------

    def on_census(self, q: int, m: Census) -> None:
        if self.learner is None:
            process = self._engine.process
            self._outbox.aside(q, Counted(m.log, self._engine.tid, process.round if process else 0))

    def on_counted(self, q: int, m: Counted) -> None:
        if self.learner is not None and m.log == self._log_id:
            self.learner.counted(q, m.tid, m.round)
            self._peers.advance(q, m.tid)
            if self.consider_voting():
                self._engine.begin()

    def consider_voting(self) -> bool:
        """Check whether this node may vote now. Return True if it votes from now on."""
        engine = self._engine
        member = engine.members.named(engine.name)
        learner, tid = self.learner, engine.tid
        if not self.learns or learner is None or member is None or self.joins:
            return False
        lists = member.node, engine.former, engine.members.nodes
        if self.trial == tid - 1 and len(engine.members.all) <= ALL_NEEDED:
            self._votes()  # no other node can have voted with this one in a later transaction
            return True
        if not learner.may_vote(*lists, tid):
            return False
        promises = learner.promises(*lists, tid)
        for vote in promises:
            before = engine.votes.get(vote.tid, vote)
            vote = before._replace(round=max(before.round, vote.round))
            self._outbox.record(vote)
            engine.votes[vote.tid] = vote
        self._warn(f"the log is complete up to {tid - 1}: {engine.name} votes from now on")
        if any(vote.tid > tid for vote in promises):
            self.trial = tid
        else:
            self._votes()
        return True

    def _votes(self) -> None:
        """Record that this node votes in all transactions from the next on."""
        self.learner = None
        self._outbox.record(Voter(self._engine.tid))

    def _learn(self, learner: Learner) -> None:
        """Repeat the census; post an empty transaction if the log is complete but too short to vote."""
        engine = self._engine
        if self.joins or not self.learns:
            return
        lists = engine.me, engine.former, engine.members.nodes
        for q in learner.asked(*lists):
            if q not in learner.answers:
                self._outbox.aside(q, Census(self._log_id))
        if engine.me < 0 or engine.lags or not learner.enough(*lists):
            return
        if self._empty is None:
            self._empty = Spec(engine.new_sid(), Kind.NOTHING, b"")
        engine.hold(self._empty)
        engine.journal(self._empty.sid)
        for q in engine.members.nodes:
            if q != engine.me:
                self._outbox.send(q, Data(self._empty))
                self._outbox.send(q, Wish(engine.tid, self.wish_round, self._empty.sid))

    def decided(self, sid: Sid) -> None:
        """Forget state that belonged to the transaction that was decided."""
        self.wish_round = 0
        if self._empty is not None and self._empty.sid == sid:
            self._empty = None
