"""When a master claims the next epoch, and whether it may serve: the part that judges others.

Whoever suspects the primary says so to all; a master claims the next epoch when a majority suspects the
primary of the present one, when that one resigned, or when it was this master itself in an earlier life.
The log decides which claim is first. The primary holds a lease (:mod:`neo.master.election.lease`): it
may lose it and get it back in the same epoch, if nobody claimed the next one meanwhile.

Pure: time is given, in seconds of a monotonic clock; messages go in and out as values.
"""

from __future__ import annotations

from neo.master.election.epochs import Claim, Decision, Epochs, Resign
from neo.master.election.lease import ASK_SECONDS, OVER_SECONDS, Lease, Witness
from neo.protocol.packets import NotifyLease, NotifyLeaseGranted

#: A primary that was not heard serving for so long is suspected: longer than it can serve unheard.
SILENCE_SECONDS = 2.5
#: A new primary waits for the lease of the one before, and is not heard serving meanwhile.
BEGIN_SECONDS = SILENCE_SECONDS + OVER_SECONDS
#: Who refuses connections is suspected so soon: it may just have been restarted.
GONE_SECONDS = 0.15
#: A suspicion is said again so often, and counts for so long.
SUSPECT_SECONDS = 0.25
SUSPICION_SECONDS = 1.0
#: Masters claim one after the other, so that the first is decided without a duel.
TURN_SECONDS = 0.1


class Election:
    def __init__(self, me: str, life: int, epochs: Epochs, now: float) -> None:
        """``epochs``: what the log says, applied by the owner. ``life``: a random number of this
        process."""
        self.me = me
        self.life = life
        self.epochs = epochs
        self.witness = Witness(now, epochs.epoch)
        #: In this process, of the present epoch.
        self.lease: Lease | None = None
        self._asked = now - ASK_SECONDS
        #: When the primary has to be heard at last.
        self._patience = now + BEGIN_SECONDS
        #: Since when it has been suspected, or has resigned.
        self._since: float | None = None
        self._said = now - SUSPECT_SECONDS
        #: Since when masters have refused connections.
        self._gone: dict[str, float] = {}
        #: Who suspects the primary of the present epoch, and when they said so last.
        self._suspicions: dict[str, float] = {}

    # -- what happens ------------------------------------------------------------------------------

    def decided(self, decision: Decision, now: float) -> None:
        """It was applied to ``epochs``, and is on the disk."""
        if isinstance(decision, Resign):
            # The successor claims first; who resigned has heard nobody serve, and waits as long.
            self._patience = now + SILENCE_SECONDS
        if not isinstance(decision, Claim):
            return
        self.witness.decided(decision.epoch, now)
        self._patience = now + BEGIN_SECONDS
        self._since = None
        self._suspicions.clear()
        self.lease = None
        if self.is_primary:
            clear = self.witness.former + OVER_SECONDS
            self.lease = Lease(self.me, decision.epoch, now, self.epochs.doubt, clear)
            self._asked = now - ASK_SECONDS

    def asked(self, master: str, m: NotifyLease, now: float) -> NotifyLeaseGranted | None:
        """A primary asks for its lease: the answer, if there is one."""
        age = self.witness.grant(m.epoch, now)
        if age is None or master != self.epochs.primary:
            return None
        if m.serving:
            self._patience = now + SILENCE_SECONDS
        return NotifyLeaseGranted(m.epoch, m.sent, age)

    def granted(self, master: str, m: NotifyLeaseGranted, now: float) -> None:
        """Another master granted the lease of this one."""
        if self.lease is not None and self.lease.epoch == m.epoch:
            self.lease.granted(master, m.sent, m.age, now)

    def suspected(self, master: str, epoch: int, now: float) -> None:
        """Another master does not hear the primary of ``epoch``."""
        if epoch == self.epochs.epoch:
            self._suspicions[master] = now

    def reached(self, master: str) -> None:
        self._gone.pop(master, None)

    def refused(self, master: str, now: float) -> None:
        """Nobody listens where ``master`` should."""
        self._gone.setdefault(master, now)

    # -- what follows ------------------------------------------------------------------------------

    @property
    def is_primary(self) -> bool:
        """This process has the present epoch, whether it may serve or not."""
        epochs = self.epochs
        return (epochs.primary, epochs.life) == (self.me, self.life) and not epochs.resigned

    def look(self, members: tuple[str, ...], now: float) -> float:
        """Seconds for which this master may serve; 0 or less: it must not."""
        if self.lease is None or not self.is_primary:
            return 0.0
        self.witness.used(now)
        self.lease.look(members, now)
        return self.lease.left(now)

    def ask(self, serving: bool, now: float) -> NotifyLease | None:
        """What a primary has to say to all others now."""
        if not self.is_primary or now - self._asked < ASK_SECONDS:
            return None
        self._asked = now
        return NotifyLease(self.epochs.epoch, now, serving)

    def suspicion(self, now: float) -> bool:
        """Whether to tell the others now that the primary is suspected."""
        if not self.suspects(now) or now - self._said < SUSPECT_SECONDS:
            return False
        self._said = now
        return True

    def claim(self, members: tuple[str, ...], now: float) -> Claim | None:
        """What to post, if this master should be the next primary."""
        if self.me not in members or self.is_primary:
            self._since = None
            return None
        if not self._vacant(now) and not self._agreed(members, now):
            self._since = None
            return None
        if self._since is None:
            self._since = now
        if now - self._since < TURN_SECONDS * self._turn(members):
            return None
        return Claim(self.epochs.epoch + 1, self.me, self.life)

    def _vacant(self, now: float) -> bool:
        """No primary can serve in this epoch."""
        epochs = self.epochs
        if epochs.resigned and epochs.successor not in ("", self.me):
            return now > self._patience
        return not epochs.epoch or epochs.resigned or epochs.primary == self.me

    def suspects(self, now: float) -> bool:
        """Whether the primary does not seem to serve any more."""
        primary = self.epochs.primary
        if not self.epochs.epoch or primary == self.me:
            return False
        gone = self._gone.get(primary)
        return now > self._patience or (gone is not None and now - gone > GONE_SECONDS)

    def _agreed(self, members: tuple[str, ...], now: float) -> bool:
        """A majority suspects the primary, this master included."""
        if not self.suspects(now):
            return False
        others = [
            master
            for master, said in self._suspicions.items()
            if master in members and now - said < SUSPICION_SECONDS
        ]
        return len(others) + 1 > len(members) // 2

    def _turn(self, members: tuple[str, ...]) -> int:
        """Who comes after the last primary is first; a successor, or a former life, does not wait."""
        epochs = self.epochs
        if self.me in (epochs.successor, epochs.primary):
            return 0
        at = members.index(epochs.primary) if epochs.primary in members else -1
        return (members.index(self.me) - at - 1) % len(members)
