"""The replicated log of one node: a consensus per transaction number, one after the other.

This is the core that a process embeds: the daemon of this package, or a NEO master. It has no IO. Its
owner calls :meth:`Engine.receive`, :meth:`~Engine.post`, :meth:`~Engine.repost` and
:meth:`~Engine.tick`. After each call it takes the :class:`~neo.transactor.outbox.Batch`, with three
obligations:

1. append ``records`` to the disk, in order, at once;
2. send ``sends`` when these and all earlier records are durable: they are promises;
3. send ``asides`` at any time: they are facts or questions.

A record of type :class:`~neo.transactor.messages.Entry` is a decided transaction; the owner may act on it
when it is durable. Messages may be lost, duplicated and reordered. Everything runs on one thread.

Transaction ``t + 1`` begins on a node when it knows ``t``. So the members of a transaction, and the
coordinator of its round 0 (the origin of the last decided specification), follow from the log before it,
and are the same on all nodes that take part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from neo.transactor.catchup import GUEST, CatchUp, LogReader, Peers
from neo.transactor.consensus import STEPS, Process
from neo.transactor.detector import Detector
from neo.transactor.durable import Begun, Durable, LogEnd
from neo.transactor.fairness import Fairness
from neo.transactor.messages import (
    NEVER,
    Ack,
    Ask,
    Data,
    Decide,
    Entry,
    Held,
    Kind,
    Known,
    Message,
    Nack,
    Refusal,
    Sid,
    Spec,
    Status,
    Step,
    Vote,
    Want,
    Wish,
)
from neo.transactor.outbox import Batch, Outbox


class Timing(NamedTuple):
    """In ticks of the owner; the defaults are for ticks of 25 ms."""

    #: Interval of resending.
    resend: int = 8
    #: Interval of requests for missing data.
    fetch: int = 40
    #: Interval of the heartbeat: a status to each peer.
    heartbeat: int = 10
    #: A peer that was silent for longer is suspected.
    silence: int = 60
    #: Timeout of round 0, even if its coordinator is alive.
    round_timeout: int = 80
    #: Time for which the origin of the last transaction waits for posts of other nodes.
    fairness: int = 4

    def timeout_of(self, round_: int) -> int:
        """Return the timeout of a round. It grows, up to elevenfold, until some round is long enough."""
        return self.round_timeout * (1 + min(round_, 10))


class Specs(dict[Sid, Spec]):
    """Undecided specifications that a node holds, and which of them are on its disk: at most one per
    origin, besides those that are needed."""

    def __init__(self, held: dict[Sid, Spec]) -> None:
        super().__init__(held)
        self._written = set(held)
        self._latest: dict[int, Sid] = {sid.node: sid for sid in held}
        #: When to request missing data, by sid.
        self._due: dict[Sid, int] = {}

    def add(self, spec: Spec, needed: Iterable[Sid | None]) -> None:
        """Hold it instead of the origin's last one, unless that is among those ``needed``."""
        before = self._latest.get(spec.sid.node)
        if before is not None and before != spec.sid and before not in needed:
            self.pop(before, None)
            self._written.discard(before)
        self[spec.sid] = spec
        self._latest[spec.sid.node] = spec.sid

    def missing(self, sid: Sid, now: int, first: int, again: int) -> bool:
        """Return whether to request it now: after ``first`` ticks, then every ``again`` ticks."""
        if now < self._due.setdefault(sid, now + first):
            return False
        self._due[sid] = now + again
        return True

    def write(self, sid: Sid) -> Spec | None:
        """Return the specification and mark it as written; None if it is on disk already."""
        if sid in self._written:
            return None
        self._written.add(sid)
        return self[sid]

    def decided(self, last: Sid, needed: Iterable[Sid | None]) -> None:
        """Keep each origin's newest and those needed for the next transaction."""
        self._due.clear()
        keep = ({*self._latest.values()} - {last}).union(sid for sid in needed if sid)
        for sid in self.keys() - keep:
            del self[sid]
        self._written &= keep


class Engine:
    def __init__(
        self,
        name: str,
        durable: Durable,
        reader: LogReader,
        timing: Timing,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``warn`` takes warnings for the operator."""
        self.name = name
        self.log_id = durable.log
        self.tid, self.last, self.genesis, self.members, self.former = durable.end
        self._recovered = durable.begun is Begun.RECOVERED
        self.me = NEVER
        self.now = 0
        self.detector = Detector(timing.silence)
        self.peers = Peers(dict(durable.known))
        self.process: Process | None = None
        #: The last specification posted here, until it is decided.
        self.mine: Spec | None = None
        self._timing = timing
        self.votes = dict(durable.votes)
        self._specs = Specs(durable.held)
        self._number = durable.number
        self._outbox = Outbox()
        self.catch_up = CatchUp(
            self, self._outbox, self.peers, self.detector, reader, durable, warn
        )
        #: The last of its own specifications that was decided.
        self._done: Sid | None = None
        #: One message per peer for the next transaction, received before the decision of this one.
        self._early: dict[int, Step | Decide] = {}
        #: Members that have not acknowledged the last transaction: their ACK may still arrive.
        self._unacknowledged: set[int] = set()
        self._fairness = Fairness(timing.fairness, self._outbox)
        self._handlers: dict[type, Callable[..., None]] = {
            Decide: self._on_decide,
            Data: self._on_data,
            Want: self._on_want,
            **self.catch_up.handlers,
        }
        self.catch_up.consider_voting()  # the only member has no peer to ask
        self.begin()

    # -- for the owner -----------------------------------------------------------------------------

    def take(self) -> Batch:
        """Return the pending output; see the obligations above."""
        return self._outbox.take()

    def status(self) -> Status:
        """Return the status: the first message for a peer in a session."""
        return Status(self.tid, self.log_id, self._recovered, self.learns)

    @property
    def learns(self) -> bool:
        """Whether this node lost its logs and must not vote yet."""
        return self.catch_up.learns

    @property
    def cluster_tid(self) -> int:
        """The transaction in progress, as far as this node knows."""
        return max(self.tid, *self.peers.tids.values(), 0)

    @property
    def lags(self) -> bool:
        """Whether a peer knows more transactions."""
        return self.cluster_tid > self.tid

    @property
    def started(self) -> bool:
        """Whether the consensus on the next transaction has a value."""
        return self.process is not None and self.process.started

    @property
    def majority_alive(self) -> bool:
        alive = len(self.members.all) - len(self.detector.suspected)
        return alive > len(self.members.all) // 2

    def post(self, tid: int, data: bytes, kind: int = Kind.DATA) -> Sid | Refusal:
        """Try to make ``data`` transaction ``tid``. If it is decided, all nodes see it with this id."""
        refusal = self._refuse(tid)
        if refusal is not None:
            return refusal
        spec = Spec(self.new_sid(), kind, data)
        self._want(spec, known=False)
        return spec.sid

    def repost(self, tid: int, sid: Sid) -> Sid | Refusal:
        """Try again with data that was posted before and lost against another specification."""
        if sid == self._done:
            return Refusal.DONE
        refusal = self._refuse(tid)
        if refusal is not None:
            return refusal
        # A list of members is valid for one transaction only, because another list may be decided first.
        if self.mine is None or self.mine.sid != sid or self.mine.kind == Kind.MEMBERS:
            return Refusal.OTHER
        self._want(self.mine, known=True)
        return sid

    def reset(self, node: int) -> None:
        """Forget a peer's state: it may come back with another journal."""
        self.peers.forget(node)
        self._early.pop(node, None)
        self._outbox.record(Known(node, 0))

    def tick(self) -> None:
        """Advance the time by one tick."""
        self.now += 1
        self.detector.tick(self.now)
        if self.now % self._timing.heartbeat == 0:
            self._outbox.aside_all(self._others(), self.status())
        if self.now % self._timing.resend == 0 and self.catch_up.needed:
            self.catch_up.tick()
        process = self.process
        if process is None:
            return
        if self._fairness.held:
            self._fairness.serve(process, self.now)
        elif process.started:
            self._drive(process)
        else:
            self._round_began = (process.round, self.now)  # idle time does not count for the timeout

    def receive(self, q: int, m: Message) -> None:
        """Handle a message of peer ``q``, whose name was verified (:mod:`neo.transactor.node`)."""
        if q <= GUEST:
            self.catch_up.on_guest(q, m)
            return
        self.detector.heard(q, self.now)
        handler = self._handlers.get(type(m))
        if handler is not None:
            handler(q, m)
            return
        assert isinstance(m, Step)
        if m.tid == self.tid:
            self._step(q, m)
        elif m.tid < self.tid:
            self._late(q, m)
        else:
            self.peers.advance(q, m.tid)
            self._early[q] = m

    def validate(self) -> None:
        """Assert the invariants that hold between two calls."""
        process = self.process
        if process is not None:
            assert process.tid == self.tid and not self.learns
            assert process.stamp <= process.round
            assert process.estimate is None or process.estimate in self._specs
            assert process.offer is None or process.offer not in self._specs

    # -- the environment of the consensus ----------------------------------------------------------

    def persist(self, vote: Vote) -> None:
        if vote.sid is not None:
            self.journal(vote.sid)
        self._outbox.record(vote)

    def send(self, to: int, message: Message) -> None:
        self._outbox.send(to, message)

    def holds(self, sid: Sid) -> bool:
        return sid in self._specs

    def fetch(self, sid: Sid, holder: int) -> None:
        """Request missing data, but not at once: it may be on its way from its origin."""
        timing = self._timing
        if self._specs.missing(sid, self.now, timing.resend, timing.fetch) and holder != self.me:
            self._outbox.aside(holder, Want(sid))

    def decide(self, sid: Sid) -> None:
        process = self.process
        assert process is not None
        unacknowledged = {q for q in process.members if q not in process.acks}
        self._outbox.aside_all(self._others(), Decide(self.tid, sid))
        self.append(self._specs[sid])
        self._unacknowledged = unacknowledged

    # -- one transaction after the other -----------------------------------------------------------

    def begin(self) -> None:
        """Begin the consensus on the next transaction, if this node may take part."""
        member, nodes = self.members.named(self.name), self.members.nodes
        before, self.me = self.me, member.node if member else NEVER
        if (self.detector.watched, before) != (nodes, self.me):
            self.detector.watch(nodes, self.me, self.now)
        self.process = None
        if member and not self.learns and not self.catch_up.joins:
            first = self.last.node if self.last.node in nodes else nodes[0]
            vote = self.votes.pop(self.tid, None)
            self.process = Process(self.tid, self.me, nodes, first, self, vote)
        self._round_began = (0, self.now)

    def append(self, spec: Spec) -> None:
        """Append ``spec`` as transaction ``tid``, and begin the next one."""
        end = LogEnd(self.tid, self.last, self.genesis, self.members, self.former)
        self._outbox.record(Entry(self.tid, spec))
        self._fairness.decided(self.tid, spec.sid.node, self.process)
        if self.mine is not None and self.mine.sid == spec.sid:
            self.mine, self._done = None, spec.sid
        self.tid, self.last, self.genesis, self.members, self.former = end.after(spec)
        self._unacknowledged = set()
        self._specs.decided(spec.sid, self._needed())
        self.catch_up.decided(spec.sid)
        self.catch_up.consider_voting()
        self.begin()
        early, self._early = self._early, {}
        for q, m in early.items():
            self.receive(q, m)

    def _step(self, q: int, m: Step) -> None:
        process = self.process
        if process is None:
            if type(m) is Nack:
                self.catch_up.wish_round = max(self.catch_up.wish_round, m.round)
        elif type(m) is Wish:
            self._fairness.wish(process, q, m, self.now)
        elif q in process.members and q not in self.peers.strangers:
            STEPS[type(m)](process, q, m)

    def _late(self, q: int, m: Step) -> None:
        """Answer a message about a transaction that is decided."""
        if type(m) is Wish and m.sid != self.last:
            self._fairness.waits(q)
        if m.tid < self.tid - 1:
            self._outbox.aside(q, self.status())
            return
        if type(m) is Ack and q in self._unacknowledged:
            self._unacknowledged.discard(q)  # sent before q heard of the decision
            return
        self._outbox.aside(q, Decide(m.tid, self.last))

    def _on_decide(self, q: int, m: Decide) -> None:
        if m.tid > self.tid:
            self.peers.advance(q, m.tid + 1)
            self._early[q] = m
        elif m.tid == self.tid:
            spec = self._specs.get(m.sid)
            if spec is not None:
                self.append(spec)
            else:
                self._outbox.aside(q, Ask(self.tid))

    def _drive(self, process: Process) -> None:
        """Resend, or suspect the coordinator after a timeout."""
        if process.round != self._round_began[0]:
            self._round_began = (process.round, self.now)
        waited = self.now - self._round_began[1]
        coordinator = process.coordinator
        timed_out = waited > self._timing.timeout_of(process.round)
        if coordinator != self.me and (timed_out or self._unusable(coordinator)):
            process.suspect(self._unusable)
        elif waited and waited % self._timing.resend == 0:
            process.resend()

    def _unusable(self, q: int) -> bool:
        """Return whether waiting for this coordinator is pointless."""
        peers = self.peers
        return q in self.detector.suspected or q in peers.strangers or q in peers.learners

    def _others(self) -> list[int]:
        return [q for q in self.members.nodes if q != self.me]

    # -- specifications ----------------------------------------------------------------------------

    def _refuse(self, tid: int) -> Refusal | None:
        if tid < self.cluster_tid or tid > self.tid:
            return Refusal.OLD if tid < self.cluster_tid else Refusal.NEW
        process = self.process
        if process is None:
            return Refusal.PROPOSE_ERROR
        if process.wanted is not None or self.me in self._fairness.held:
            return Refusal.OTHER
        if process.stamp != NEVER or process.offer is not None:
            self._fairness.refused()
            return Refusal.STARTED
        return None

    def new_sid(self) -> Sid:
        self._number += 1
        return Sid(self.me, self._number)

    def _want(self, spec: Spec, known: bool) -> None:
        """Try to make a specification of this node the next transaction."""
        process = self.process
        assert process is not None
        self.mine = spec
        self.hold(spec)
        self.journal(spec.sid)
        if not known:
            for q in self._others():
                self.send(q, Data(spec))
        self._fairness.want(process, spec.sid, self.now)

    def hold(self, spec: Spec) -> None:
        self._specs.add(spec, self._needed())

    def journal(self, sid: Sid) -> None:
        spec = self._specs.write(sid)
        if spec is not None:
            self._outbox.record(Held(spec))

    def _needed(self) -> list[Sid | None]:
        """Return the specifications that must be held until a decision."""
        needed = [vote.sid for vote in self.votes.values()]
        if self.mine is not None:
            needed.append(self.mine.sid)
        if self.process is not None and self.process.tid == self.tid:
            needed += [self.process.estimate, self.process.offer]
        return needed

    def _on_data(self, q: int, m: Data) -> None:
        spec = m.spec
        if spec.sid in self._specs or spec.sid == self.last:
            return
        if spec.sid.node == q:
            self._fairness.waits(q)
        self.hold(spec)
        if self.process is not None:
            self.process.arrived(spec.sid)

    def _on_want(self, q: int, m: Want) -> None:
        spec = self._specs.get(m.sid)
        if spec is not None:
            self._outbox.aside(q, Data(spec))
        elif m.sid == self.last:
            self._outbox.aside(q, Decide(self.tid - 1, m.sid))
