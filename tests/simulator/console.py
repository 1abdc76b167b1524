"""``neoctl`` in a simulated world: connects to the admin node, sends one command and disconnects."""

from __future__ import annotations

from collections.abc import Callable

from neo.net.connection import Connection
from neo.protocol.errors import PeerError
from neo.protocol.packets import Message, Ping, Pong, Request
from tests.simulator.cluster import Cluster
from tests.simulator.network import End
from tests.simulator.world import Violation

#: The timeout of ``neoctl``.
TIMEOUT_SECONDS = 30.0
HOST = "operator"

Told = Callable[[Message | None], None]


class Command:
    """One command. ``told`` gets the answer, which may be an Error, or None if there is none. A message
    without an answer is followed by a Ping, as in ``neoctl``."""

    def __init__(self, cluster: Cluster, message: Message, told: Told) -> None:
        self._world = cluster.world
        self._message = message
        self._told: Told | None = told
        self._connection = Connection(server=False)
        self._end: End | None = None
        cluster.network.connect(HOST, cluster.admin.address, self._connected, self.lost)
        cluster.world.call_later(TIMEOUT_SECONDS, lambda: self._finish(None), "neoctl timeout")

    def _connected(self, end: End) -> None:
        self._end = end
        end.receiver = self
        question = self._message
        if not isinstance(question, Request):
            self._connection.send(question)
            question = Ping()
        self._connection.ask(question, None)
        end.write(self._connection.take_outgoing())

    def received(self, data: bytes) -> None:
        try:
            for received in self._connection.receive(data):
                if received.question is not None:
                    self._finish(received.message)
                elif type(received.message) is Ping:
                    self._connection.answer(received.message_id, Pong())
                else:
                    raise PeerError(f"unexpected {type(received.message).__name__}")
        except PeerError as e:
            self._world.fail(Violation(f"the admin node broke the protocol: {e}"))
        if self._end is not None:
            self._end.write(self._connection.take_outgoing())

    def lost(self, reason: str) -> None:
        self._finish(None)

    def _finish(self, answer: Message | None) -> None:
        told, self._told = self._told, None
        self._connection.close()
        if self._end is not None:
            self._end.close()
        if told is not None:
            told(answer)
