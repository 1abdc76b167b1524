"""The election: when a master claims the next epoch, and whether it may serve.

A master that suspects the primary tells all others. A master claims the next epoch when a majority
suspects the primary of the current one, when that primary resigned, or when the primary was this master
before it restarted. The log decides which claim is first. The primary holds a lease
(:mod:`neo.master.election.lease`). It may lose and regain the lease in the same epoch, unless another
master claims the next one meanwhile.

Pure: time is an argument, in seconds of a monotonic clock; messages are arguments and return values.
"""

from __future__ import annotations

from neo.master.election.epochs import Claim, Decision, Epochs, Resign
from neo.master.election.lease import ASK_SECONDS, OVER_SECONDS, Lease, LeaseGrantor
from neo.protocol.packets import NotifyLease, NotifyLeaseGranted

#: A primary that was not heard serving for this long is suspected: longer than its lease lasts unheard.
SILENCE_SECONDS = 2.5
#: A new primary waits until the lease of the former one is over; the other masters hear nothing of it for
#: this time.
BEGIN_SECONDS = SILENCE_SECONDS + OVER_SECONDS
#: A master that refuses connections is suspected after this time: it may just have been restarted.
GONE_SECONDS = 0.15
#: A suspicion is repeated at this interval, and expires after this time.
SUSPECT_SECONDS = 0.25
SUSPICION_SECONDS = 1.0
#: Delay between the claims of consecutive masters, so that claims seldom compete.
TURN_SECONDS = 0.1


class Election:
    def __init__(self, me: str, incarnation: int, epochs: Epochs, now: float) -> None:
        """``epochs``: the state in the log, updated by the owner. ``incarnation``: a random number of
        this process."""
        self.me = me
        self.incarnation = incarnation
        self.epochs = epochs
        self.grantor = LeaseGrantor(now, epochs.epoch)
        #: The lease of the current epoch, if this process is its primary.
        self.lease: Lease | None = None
        self._lease_asked = now - ASK_SECONDS
        #: When the primary is suspected unless it is heard before.
        self._deadline = now + BEGIN_SECONDS
        #: When this master began to want the next epoch.
        self._claim_since: float | None = None
        self._suspicion_sent = now - SUSPECT_SECONDS
        #: When each master began to refuse connections.
        self._refused_since: dict[str, float] = {}
        #: Masters that suspect the primary of the current epoch, and the time of the last suspicion that
        #: each one sent.
        self._suspicions: dict[str, float] = {}

    # -- what happens ------------------------------------------------------------------------------

    def decided(self, decision: Decision, now: float) -> None:
        """Handle a decision that is durable, and applied to ``epochs``."""
        if isinstance(decision, Resign):
            # The successor claims first. All other masters wait for it, also the master that resigned.
            self._deadline = now + SILENCE_SECONDS
        if not isinstance(decision, Claim):
            return
        self.grantor.decided(decision.epoch, now)
        self._deadline = now + BEGIN_SECONDS
        self._claim_since = None
        self._suspicions.clear()
        self.lease = None
        if self.is_primary:
            clear = self.grantor.former + OVER_SECONDS
            self.lease = Lease(self.me, decision.epoch, now, self.epochs.doubt, clear)
            self._lease_asked = now - ASK_SECONDS

    def asked(self, master: str, m: NotifyLease, now: float) -> NotifyLeaseGranted | None:
        """Return the answer to a primary that asks for its lease; None if there is none."""
        age = self.grantor.grant(m.epoch, now)
        if age is None or master != self.epochs.primary:
            return None
        if m.serving:
            self._deadline = now + SILENCE_SECONDS
        return NotifyLeaseGranted(m.epoch, m.sent, age)

    def granted(self, master: str, m: NotifyLeaseGranted, now: float) -> None:
        """Handle the grant of another master for the lease of this one."""
        if self.lease is not None and self.lease.epoch == m.epoch:
            self.lease.granted(master, m.sent, m.age, now)

    def suspected(self, master: str, epoch: int, now: float) -> None:
        """Note that another master suspects the primary of ``epoch``."""
        if epoch == self.epochs.epoch:
            self._suspicions[master] = now

    def reached(self, master: str) -> None:
        self._refused_since.pop(master, None)

    def refused(self, master: str, now: float) -> None:
        """Note that no process listens at the address of ``master``."""
        self._refused_since.setdefault(master, now)

    # -- what follows ------------------------------------------------------------------------------

    @property
    def is_primary(self) -> bool:
        """Whether this process is the primary of the current epoch, with or without a valid lease."""
        epochs = self.epochs
        return (epochs.primary, epochs.incarnation) == (self.me, self.incarnation) and not epochs.resigned

    def lease_left(self, members: tuple[str, ...], now: float) -> float:
        """Return the seconds for which this master may serve; 0 or less: it must not serve."""
        if self.lease is None or not self.is_primary:
            return 0.0
        self.grantor.used(now)
        self.lease.refresh(members, now)
        return self.lease.left(now)

    def ask(self, serving: bool, now: float) -> NotifyLease | None:
        """Return the request of a primary to all others that is due now, if any."""
        if not self.is_primary or now - self._lease_asked < ASK_SECONDS:
            return None
        self._lease_asked = now
        return NotifyLease(self.epochs.epoch, now, serving)

    def suspicion(self, now: float) -> bool:
        """Return whether to tell the others now that the primary is suspected."""
        if not self.suspects(now) or now - self._suspicion_sent < SUSPECT_SECONDS:
            return False
        self._suspicion_sent = now
        return True

    def claim(self, members: tuple[str, ...], now: float) -> Claim | None:
        """Return the claim to post, if this master should become the primary."""
        if self.me not in members or self.is_primary:
            self._claim_since = None
            return None
        if not self._vacant(now) and not self._agreed(members, now):
            self._claim_since = None
            return None
        if self._claim_since is None:
            self._claim_since = now
        if now - self._claim_since < TURN_SECONDS * self._turn(members):
            return None
        return Claim(self.epochs.epoch + 1, self.me, self.incarnation)

    def _vacant(self, now: float) -> bool:
        """Return whether no primary can serve in the current epoch."""
        epochs = self.epochs
        if epochs.resigned and epochs.successor not in ("", self.me):
            return now > self._deadline
        return not epochs.epoch or epochs.resigned or epochs.primary == self.me

    def suspects(self, now: float) -> bool:
        """Return whether the primary seems to be down."""
        primary = self.epochs.primary
        if not self.epochs.epoch or primary == self.me:
            return False
        refused = self._refused_since.get(primary)
        return now > self._deadline or (refused is not None and now - refused > GONE_SECONDS)

    def _agreed(self, members: tuple[str, ...], now: float) -> bool:
        """Return whether a majority suspects the primary, this master included."""
        if not self.suspects(now):
            return False
        others = [
            master
            for master, said in self._suspicions.items()
            if master in members and now - said < SUSPICION_SECONDS
        ]
        return len(others) + 1 > len(members) // 2

    def _turn(self, members: tuple[str, ...]) -> int:
        """Return this master's place in the order of claims. The order begins after the last primary; a
        successor, or the last primary itself after a restart, has place 0."""
        epochs = self.epochs
        if self.me in (epochs.successor, epochs.primary):
            return 0
        at = members.index(epochs.primary) if epochs.primary in members else -1
        return (members.index(self.me) - at - 1) % len(members)
