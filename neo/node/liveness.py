"""Failure detector of one connection, by Ping.

TCP detects a lost machine after 20 seconds (:mod:`neo.net.sockets`), and a suspended process never.
Where another node can take over, detection must be faster.
"""

from __future__ import annotations

from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.errors import ConnectionLost
from neo.protocol.packets import Ping, Pong

#: Interval between two checks.
LOOK_SECONDS = 0.5


class Pulse:
    """Measures how long a peer owes an answer.

    Checks are counted, not seconds, so that a process that was suspended itself first reads what arrived
    meanwhile. Runs on the thread of the event loop.
    """

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._looks = 0
        self._asked = False

    def look(self) -> float:
        """Return for how many seconds the peer has owed an answer. Call every LOOK_SECONDS."""
        if self._asked:
            self._looks += 1
        else:
            self._asked, self._looks = True, 0
            self.peer.ask(Ping()).then(self._answered)
        return self._looks * LOOK_SECONDS

    def _answered(self, answer: Future[Pong]) -> None:
        self._asked = False
        try:
            answer.result()
        except ConnectionLost:
            return  # the peer's handler reacts
