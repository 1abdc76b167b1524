from __future__ import annotations

import random
from typing import Any

import pytest

from neo.net import inbox as module
from neo.net.connection import HANDSHAKE, Connection
from neo.net.inbox import KEPT_BYTES, TRIES, Inbox
from neo.protocol.codec import Decoder, encode
from neo.protocol.errors import ConnectionLost, HandshakeError
from neo.protocol.ids import p64
from neo.protocol.packets import AnswerNewOIDs, AskNewOIDs, InvalidateObjects, Message, Ping, Pong


def invalidation(n: int, size: int) -> InvalidateObjects:
    return InvalidateObjects(p64(n), [p64(i) for i in range(size)])


def take(inbox: Inbox) -> list[Message]:
    taken = []
    while (received := inbox.first()) is not None:
        taken.append(received.message)
        inbox.drop()
    return taken


def dialed(*portions: bytes) -> Inbox:
    """Return the inbox of a connection on which these portions have come."""
    inbox = Inbox(Connection(server=False))
    inbox.portions += portions
    return inbox


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[Failing]:
    """Let messages be decoded by a decoder that fails when the test says so."""
    monkeypatch.setattr(module, "Decoder", Failing)
    Failing.chance = 0.0
    return Failing


class Failing(Decoder):
    """Fails as when memory is short, before or after its work, or seldom."""

    chance = 0.0
    random = random.Random(0)

    def _maybe(self) -> None:
        if self.random.random() < self.chance:
            raise MemoryError

    def feed(self, data: Any) -> None:
        self._maybe()
        super().feed(data)
        self._maybe()

    def take(self) -> Any:
        self._maybe()
        packet = super().take()
        self._maybe()
        return packet


@pytest.mark.parametrize("seed", range(20))
def test_no_message_is_lost_or_comes_twice_whatever_fails(
    seed: int, failing: type[Failing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TRIES", 1000)
    choice = failing.random = random.Random(seed)
    messages = [invalidation(n, choice.choice((0, 1, 300))) for n in range(40)]
    stream = HANDSHAKE + b"".join(encode(n, message) for n, message in enumerate(messages))
    inbox = dialed()
    taken: list[Message] = []
    failing.chance = 0.2
    while stream or len(taken) < len(messages):
        size = choice.choice((1, 5, 100, 4000))
        if stream:
            inbox.portions.append(stream[:size])
            stream = stream[size:]
        try:
            while (received := inbox.first()) is not None:
                if choice.random() < 0.2:
                    raise MemoryError  # while it takes effect
                taken.append(received.message)
                inbox.drop()
        except MemoryError:
            assert inbox.pending
    assert taken == messages
    assert not inbox.pending and not inbox.portions


def test_the_same_message_comes_until_it_is_dropped() -> None:
    inbox = dialed(HANDSHAKE, encode(0, Ping()) + encode(1, invalidation(1, 0)))
    for _ in range(3):
        received = inbox.first()
        assert received is not None and received.message == Ping()
    outgoing: list[bytes] = []
    inbox.drop_with(outgoing, encode(0, Pong()))
    assert outgoing == [encode(0, Pong())]
    assert take(inbox) == [invalidation(1, 0)]


def test_a_question_stays_open_until_its_answer_took_effect() -> None:
    connection = Connection(server=False)
    number = connection.ask(AskNewOIDs(1), "context")
    inbox = Inbox(connection)
    inbox.portions += [HANDSHAKE, encode(number, AnswerNewOIDs([p64(1)]))]
    received = inbox.first()
    assert received is not None and received.question is not None
    assert list(connection.questions.values()) == [received.question]
    inbox.drop()
    assert connection.questions == {}


def test_what_never_works_ends_the_connection() -> None:
    inbox = dialed(HANDSHAKE, encode(0, Ping()))
    for _ in range(TRIES + 1):
        inbox.first()
    with pytest.raises(ConnectionLost, match="could not be handled"):
        inbox.first()


def test_a_long_message_is_not_kept_beside_the_decoder(failing: type[Failing]) -> None:
    long = encode(0, InvalidateObjects(p64(1), [p64(n) for n in range(KEPT_BYTES // 8)]))
    stream = HANDSHAKE + long
    inbox = dialed()
    size = 1 << 20
    for i in range(0, len(stream) - size, size):
        inbox.portions.append(stream[i : i + size])
        assert inbox.first() is None
        assert sum(map(len, inbox.portions)) <= KEPT_BYTES
    inbox.portions.append(stream[i + size :] + encode(1, Ping()))
    received = inbox.first()
    assert received is not None and isinstance(received.message, InvalidateObjects)
    assert len(received.message.oid_list) == KEPT_BYTES // 8
    inbox.drop()
    failing.chance = 1.0
    with pytest.raises(MemoryError):
        inbox.first()
    failing.chance = 0.0
    assert take(inbox) == [Ping()], "it is kept again"


def test_an_exception_in_a_long_message_ends_the_connection(
    failing: type[Failing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 1000)
    stream = HANDSHAKE + encode(0, invalidation(1, 1000))
    inbox = dialed(stream[:5000])
    assert inbox.first() is None
    inbox.portions.append(stream[5000:])
    failing.chance = 1.0
    with pytest.raises(MemoryError):
        inbox.first()
    failing.chance = 0.0
    with pytest.raises(ConnectionLost, match="a long message"):
        inbox.first()


def test_a_wrong_handshake_is_refused_as_soon_as_it_comes() -> None:
    inbox = dialed(HANDSHAKE[:2])
    assert inbox.first() is None
    inbox.portions.append(b"x")
    with pytest.raises(HandshakeError):
        inbox.first()
