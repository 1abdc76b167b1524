"""Whether the other end of a connection lives: it is asked again and again (Ping).

TCP notices after 20 seconds that a machine vanished (:mod:`neo.net.sockets`), and never that a process
stands still. Where another node can take over, less is waited for.
"""

from __future__ import annotations

from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.errors import ConnectionLost
from neo.protocol.packets import Ping, Pong

#: Between two looks.
LOOK_SECONDS = 0.5


class Pulse:
    """Of one connection. Looks are counted, not seconds, so that a process that stood still itself hears
    first what came meanwhile. Runs on the loop's thread."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._looks = 0
        self._asked = False

    def look(self) -> float:
        """To be called every LOOK_SECONDS: for how many seconds it has owed an answer."""
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
            return  # the handler of the peer is told
