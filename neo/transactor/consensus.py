"""Consensus on one transaction: the rotating coordinator of Chandra and Toueg, with crash recovery.

The algorithm is that of figure 6 in *Unreliable failure detectors for reliable distributed systems*
(Journal of the ACM 43, 1996). It needs a majority, and a failure detector that may err. Names are the
paper's: a process has a round ``r``, an ``estimate`` and its ``stamp`` (``ts``). Rounds count from 0, and
the coordinator rotates through the members. In each round

    phase 1   each process sends its estimate and stamp to the coordinator;
    phase 2   the coordinator proposes, of a majority of estimates, one with the highest stamp;
    phase 3   each process adopts the proposal and acknowledges, or suspects the coordinator and moves on;
    phase 4   acknowledgements of a majority lock the proposal: the coordinator tells all to decide.

Differences from the paper, and why they are safe:

* **Crash and recovery.** ``(round, estimate, stamp)`` is on disk before PROPOSE, ACK or ESTIMATE leaves;
  the environment delays these messages. All else may be lost: a coordinator that restarts collects again.
* **Lossy links.** ``resend()`` repeats what the current phase waits for. All messages are idempotent.
* **Skipped rounds.** A process that hears of a later round enters it at once, as if it had suspected
  the coordinators between. It never acknowledges an earlier round. NACK announces the later round. A
  coordinator that receives estimates requests those of the other processes (COLLECT).
* **Round 0 without phase 1.** No estimate can be older, so the coordinator may propose any value.
* **Processes without a value.** An estimate may be None until something is posted; WISH brings values
  to the coordinator. Without a value nothing happens.
* **Data and id are separate.** The processes agree on an id. A process adopts or proposes an id only when
  it holds the data.

Rules for this file: no IO, clock or randomness; all output goes through the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from neo.transactor.messages import (
    NEVER,
    Ack,
    Collect,
    Estimate,
    Message,
    Nack,
    Propose,
    Sid,
    Vote,
    Wish,
)


class Environment(Protocol):
    """The environment of a process."""

    def persist(self, vote: Vote) -> None:
        """Write to disk. Messages sent afterwards leave when the vote is durable."""

    def send(self, to: int, message: Message) -> None: ...

    def holds(self, sid: Sid) -> bool: ...

    def fetch(self, sid: Sid, holder: int) -> None:
        """Request missing data. :meth:`Process.arrived` follows when it is received."""

    def decide(self, sid: Sid) -> None:
        """Tell all that a majority has acknowledged ``sid``. The process is not used afterwards."""


class Process:
    """One process p in the consensus on one transaction."""

    __slots__ = (
        "tid", "me", "members", "first", "environment", "majority", "round", "estimate", "stamp",
        "wanted", "coordinator", "proposed", "estimates", "acks", "wishes", "offer",
    )  # fmt: skip

    def __init__(
        self,
        tid: int,
        me: int,
        members: Sequence[int],
        first: int,
        environment: Environment,
        vote: Vote | None,
    ) -> None:
        """``members``: the same, in the same order, on all nodes. ``first``: the coordinator of round 0.
        ``vote``: the state persisted before a restart."""
        self.tid = tid
        self.me = me
        self.members = members
        self.first = members.index(first)
        self.environment = environment
        self.majority = len(members) // 2 + 1
        self.round = vote.round if vote else 0
        self.estimate = vote.sid if vote else None
        self.stamp = vote.stamp if vote else NEVER
        #: Posted here for this transaction.
        self.wanted: Sid | None = None
        #: A proposal of this round whose data is missing.
        self.offer: Sid | None = None
        self._enter(self.round)
        if self.stamp == self.round and self.coordinator == me:
            self.proposed = True  # before the restart; the proposal may have left
            self.acks.add(me)
        elif self.coordinator == me:
            self.estimates[me] = (self.estimate, self.stamp)

    def _enter(self, r: int) -> None:
        """Enter round r, and reset the coordinator's state."""
        self.round = r
        self.coordinator = self.coordinator_of(r)
        self.offer = None
        #: State of the coordinator of this round.
        self.proposed = False
        self.estimates: dict[int, tuple[Sid | None, int]] = {}
        self.acks: set[int] = set()
        self.wishes: dict[int, Sid] = {}

    def coordinator_of(self, r: int) -> int:
        return self.members[(self.first + r) % len(self.members)]

    @property
    def started(self) -> bool:
        """Whether this process knows a value that may be, or may have been, decided. Such a process acts
        until a value is decided; another one only answers."""
        return (
            self.wanted is not None or self.estimate is not None or self.offer is not None
            or bool(self.wishes) or any(sid is not None for sid, _ in self.estimates.values())
        )  # fmt: skip

    # -- a value, and its data ---------------------------------------------------------------------

    def want(self, sid: Sid) -> None:
        """Try to get ``sid`` decided: ``propose(v)`` of the paper. Its data is held."""
        self.wanted = sid
        if self.coordinator == self.me:
            self._propose()
        elif self.stamp == NEVER:
            self.environment.send(self.coordinator, Wish(self.tid, self.round, sid))

    def arrived(self, sid: Sid) -> None:
        """Continue with the data of ``sid``, which has arrived."""
        if self.offer == sid:
            self._adopt(sid)
        elif self.coordinator == self.me:
            self._propose()

    def on_wish(self, q: int, m: Wish) -> None:
        if not self._current(q, m.round):
            return
        if self.coordinator == self.me:
            if not self.proposed:
                self.wishes[q] = m.sid
                self._propose()
        elif self.wanted is None and self.environment.holds(m.sid):
            self.want(m.sid)  # the wish of a learner, which does not follow the rounds

    # -- phase 1: each process sends its estimate to the coordinator -------------------------------

    def _join(self, r: int) -> None:
        """Enter round r, and send the estimate to its coordinator."""
        self._enter(r)
        self.environment.persist(Vote(self.tid, r, self.estimate, self.stamp))
        if self.coordinator != self.me:
            self._send_estimate()
            return
        self.estimates[self.me] = (self._best(), self.stamp)
        self._send_all(Collect(self.tid, r), self.members)
        self._propose()

    def _best(self) -> Sid | None:
        """Return the estimate, or a value posted here if there is none."""
        return self.wanted if self.stamp == NEVER else self.estimate

    def _send_estimate(self) -> None:
        estimate = Estimate(self.tid, self.round, self._best(), self.stamp)
        self.environment.send(self.coordinator, estimate)

    def _send_all(self, message: Message, group: Iterable[int]) -> None:
        for q in group:
            if q != self.me:
                self.environment.send(q, message)

    def on_collect(self, q: int, m: Collect) -> None:
        if m.round > self.round and q == self.coordinator_of(m.round):
            self._join(m.round)
        elif self._current(q, m.round) and q == self.coordinator and self.stamp < self.round:
            self._send_estimate()

    def on_estimate(self, q: int, m: Estimate) -> None:
        if self.coordinator_of(m.round) != self.me or m.stamp >= m.round:
            return
        if m.round > self.round:
            self._join(m.round)
        elif not self._current(q, m.round):
            return
        self.estimates[q] = (m.sid, m.stamp)
        if self.proposed and self.estimate is not None:
            self.environment.send(q, Propose(self.tid, self.round, self.estimate))
        else:
            self._propose()

    # -- phase 2: the coordinator proposes one of the newest of a majority of estimates ------------

    def _propose(self) -> None:
        if self.proposed or (self.round > 0 and len(self.estimates) < self.majority):
            return
        q, sid = self._choose()
        if sid is None:
            return
        if not self.environment.holds(sid):
            self.environment.fetch(sid, q)
            return
        self.estimate, self.stamp, self.proposed = sid, self.round, True
        self.environment.persist(Vote(self.tid, self.round, sid, self.stamp))
        self._send_all(Propose(self.tid, self.round, sid), self.members)
        self._acknowledged(self.me)

    def _choose(self) -> tuple[int, Sid | None]:
        """Return a process that holds the estimate to propose, and the estimate."""
        newest, q, sid = max(
            ((stamp, q, sid) for q, (sid, stamp) in self.estimates.items()),
            default=(NEVER, self.me, None),
            key=lambda newest: newest[0],
        )
        if newest != NEVER:
            return q, sid
        # Nothing can be decided yet, so any value is safe. Choose the origin that was served longest ago.
        wishes = {q: sid for q, (sid, _) in self.estimates.items() if sid is not None} | self.wishes
        if self.wanted is not None:
            wishes[self.me] = self.wanted
        if not wishes:
            return self.me, None
        q = min(wishes, key=lambda q: (not self.environment.holds(wishes[q]), self._turn(q)))
        return q, wishes[q]

    def _turn(self, q: int) -> int:
        """Return the place of q in a ring that ends with the origin of the last decision."""
        if q not in self.members:
            return len(self.members)
        return (self.members.index(q) - self.first - 1) % len(self.members)

    # -- phase 3: adopt and acknowledge, or suspect and move on ------------------------------------

    def on_propose(self, q: int, m: Propose) -> None:
        if self.coordinator_of(m.round) != q or q == self.me:
            return
        if m.round > self.round:
            self._enter(m.round)  # too late for an estimate
        elif not self._current(q, m.round):
            return
        if self.stamp == m.round:
            if self.estimate == m.sid:  # a coordinator proposes once per round
                self.environment.send(q, Ack(self.tid, m.round))
        elif self.environment.holds(m.sid):
            self._adopt(m.sid)
        else:
            self.offer = m.sid
            self.environment.persist(Vote(self.tid, self.round, self.estimate, self.stamp))
            self.environment.fetch(m.sid, q)

    def _adopt(self, sid: Sid) -> None:
        self.estimate, self.stamp, self.offer = sid, self.round, None
        self.environment.persist(Vote(self.tid, self.round, sid, self.stamp))
        self.environment.send(self.coordinator, Ack(self.tid, self.round))

    def suspect(self, suspected: Callable[[int], bool]) -> None:
        """Join the next round whose coordinator is not suspected, or is this process."""
        r = self.round + 1
        while suspected(self.coordinator_of(r)) and self.coordinator_of(r) != self.me:
            r += 1
        self._join(r)

    def on_nack(self, q: int, m: Nack) -> None:
        if m.round > self.round:
            self._join(m.round)

    # -- phase 4: a majority has acknowledged ------------------------------------------------------

    def on_ack(self, q: int, m: Ack) -> None:
        if self.proposed and m.round == self.round and q in self.members:
            self._acknowledged(q)

    def _acknowledged(self, q: int) -> None:
        self.acks.add(q)
        if len(self.acks) >= self.majority:
            assert self.estimate is not None
            self.environment.decide(self.estimate)

    # -- lossy links -------------------------------------------------------------------------------

    def _current(self, q: int, r: int) -> bool:
        """Return whether round r is the current one; answer NACK if it is an earlier one."""
        if r < self.round:
            self.environment.send(q, Nack(self.tid, self.round))
        elif r > self.round:
            self._join(r)
        return r == self.round

    def resend(self) -> None:
        """Repeat what the current phase waits for."""
        if self.coordinator == self.me:
            if self.proposed and self.estimate is not None:
                proposal = Propose(self.tid, self.round, self.estimate)
                self._send_all(proposal, (q for q in self.members if q not in self.acks))
            elif self.round > 0:
                silent = (q for q in self.members if q not in self.estimates)
                self._send_all(Collect(self.tid, self.round), silent)
            if self.proposed:
                self._acknowledged(self.me)  # the only member, after a restart
            else:
                self._propose()
        elif self.stamp == self.round:
            self.environment.send(self.coordinator, Ack(self.tid, self.round))
        elif self.offer is not None:
            self.environment.fetch(self.offer, self.coordinator)
        elif self.round > 0:
            self._send_estimate()
        if self.wanted is not None and self.stamp == NEVER and self.coordinator != self.me:
            self.environment.send(self.coordinator, Wish(self.tid, self.round, self.wanted))


#: The handler of each message of a peer.
STEPS: dict[type, Callable[..., None]] = {
    Collect: Process.on_collect,
    Estimate: Process.on_estimate,
    Propose: Process.on_propose,
    Ack: Process.on_ack,
    Nack: Process.on_nack,
    Wish: Process.on_wish,
}
