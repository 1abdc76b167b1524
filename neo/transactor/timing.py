"""How long a node waits for what."""

from __future__ import annotations

from typing import NamedTuple


class Timing(NamedTuple):
    """In ticks of the owner; the defaults are for ticks of 25 ms."""

    #: What was not answered is said again.
    resend: int = 8
    #: Data that was asked for is asked for again.
    fetch: int = 40
    #: A status goes to every peer, so that silence means something.
    heartbeat: int = 10
    #: A peer that was silent for longer is suspected.
    silence: int = 60
    #: A round that takes longer is given up, even if its coordinator is alive; longer each round.
    patience: int = 80
    #: Who just had a transaction lets others go first for so long, if they want to.
    courtesy: int = 4

    def patience_with(self, round_: int) -> int:
        """Longer each round, so that there is one which is long enough; up to eleven times."""
        return self.patience * (1 + min(round_, 10))
