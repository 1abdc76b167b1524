"""One connection between two nodes, without IO (specification 2).

Theory of operation
-------------------
A :class:`Connection` takes the bytes that the peer sent and gives messages; it takes messages and
gives the bytes to send. The server's event loop, the client's blocking channel and the simulator
drive the same class. Its life is a line::

    HANDSHAKE ──(the 6 bytes match)──> OPEN ──(close, error, end of stream)──> CLOSED

* The handshake is compared byte by byte, as soon as bytes come, before anything is decoded.
* Message ids count from 0 for requests and notifications together, per direction; an answer reuses
  the id of its question (specification 2.18 to 2.23).
* Each question has the type of its answer; an answer to no question is the peer's error.
* *Close* drops what was not sent yet; *abort* sends it first, and takes no more messages.

Rules: no socket, clock, thread or logging here. The caller holds the lock, if there is one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from neo.protocol.codec import (
    LIMIT_GUEST,
    LIMIT_PEER,
    LIMIT_STRANGER,
    MAX_ID,
    Decoder,
    Packet,
    encode,
)
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import HandshakeError, LastWords, PeerError, StrangerError
from neo.protocol.packets import ANSWERS, Answer, Error, Message, Request

MAGIC = b"\x92\xa3NEO"
VERSION = b"\x01"
HANDSHAKE = MAGIC + VERSION
#: First byte of an alert and of a hello of TLS.
TLS_RECORDS = (0x15, 0x16)

#: A stranger's bytes are decoded in portions, so that requests that follow the identification at once are
#: not taken for one oversized message.
_STRANGER_PORTION = LIMIT_STRANGER // 2


class SentFlag(Protocol):
    """Tells its owner that a message was queued, whatever exception comes afterwards."""

    sent: bool


class Question(NamedTuple):
    """A request without an answer yet. ``context``: what the asker needs when the answer comes."""

    answer: type[Answer]
    context: Any


class Received(NamedTuple):
    """A message of the peer. ``question``: the question that it answers, if any."""

    message_id: int | None
    message: Message
    question: Question | None


def check_handshake(received: bytes) -> None:
    """Raise HandshakeError as soon as the beginning cannot become this version's handshake."""
    if HANDSHAKE.startswith(received):
        return
    if received[0] in TLS_RECORDS:
        raise HandshakeError(
            "the peer uses TLS and this node does not: give all nodes ca, cert and key, or none"
        )
    if received.startswith(MAGIC):
        raise HandshakeError(
            f"protocol version mismatch: the peer speaks version {received[len(MAGIC)]}, "
            f"this node {VERSION[0]}"
        )
    raise StrangerError(f"the peer is not a NEO node, it began with {received!r}")


def match(questions: dict[int | None, Question], packet: Packet) -> Received:
    """Return the message with the question that it answers, which stays among ``questions``. Raise
    PeerError, LastWords."""
    message_id, message = packet
    if not isinstance(message, Answer):
        return Received(message_id, message, None)
    question = None if message_id is None else questions.get(message_id)
    if message_id is None or question is None:
        if type(message) is Error:
            raise LastWords(message.message)
        raise PeerError(f"{type(message).__name__} answers no request of this node")
    if type(message) is not question.answer and type(message) is not Error:
        # The question stays: the asker hears of the end of the connection.
        raise PeerError(f"{question.answer.__name__} expected, got {type(message).__name__}")
    return Received(message_id, message, question)


class Connection:
    """One connection. ``server``: the peer dialed, and has not identified itself yet."""

    def __init__(self, server: bool) -> None:
        self.closed = False
        self._handshake: bytes | None = b""
        self.trusted = not server
        #: ``incomplete``: bytes of the message whose rest has not come. ``size``: bytes of the last
        #: message.
        self.decoder = Decoder(LIMIT_STRANGER if server else LIMIT_PEER)
        self._next_id = 0
        #: Message id of the last message of the peer that is no answer.
        self.last_received_id: int | None = None
        #: Questions without an answer, by message id.
        self.questions: dict[int | None, Question] = {}
        #: Whether received bytes are left that were not taken as a message.
        self.more = False
        # Received bytes that the decoder does not have yet.
        self._unread: deque[bytes] = deque()
        #: The messages to send, in order, always in the same list: a caller may delete what it has sent.
        self.outgoing: list[bytes] = [HANDSHAKE]
        #: Bytes to send that :meth:`take_outgoing` has not returned yet.
        self.queued = len(HANDSHAKE)

    @property
    def greeted(self) -> bool:
        """Whether the peer's handshake came."""
        return self._handshake is None

    # -- sending -------------------------------------------------------------------------------

    def send(
        self, message: Message, message_id: int | None = None, flag: SentFlag | None = None
    ) -> None:
        """Queue a notification. ``message_id``: for a notification that belongs to a request. Set
        ``flag`` if, and only if, the message is queued."""
        if not self.closed:
            if message_id is None:
                message_id = self._next_id
                self._next_id = (message_id + 1) & MAX_ID
            packed = encode(message_id, message)
            outgoing, size = self.outgoing, len(packed)
            # Nothing is called between these lines, so that an exception from outside comes before
            # all of them or after (see neo.net.channel).
            outgoing += (packed,)
            self.queued += size
            if flag is not None:
                flag.sent = True

    def ask(self, message: Request[Any], context: Any, flag: SentFlag | None = None) -> int:
        """Queue a request and return its message id. ``context`` comes back with the answer. ``flag``: as
        in :meth:`send`."""
        assert not self.closed
        message_id = self._next_id
        self._next_id = (message_id + 1) & MAX_ID
        packed = encode(message_id, message)
        question = Question(ANSWERS[type(message)], context)
        outgoing, questions, size = self.outgoing, self.questions, len(packed)
        # Nothing is called between these lines: see send().
        questions[message_id] = question
        outgoing += (packed,)
        self.queued += size
        if flag is not None:
            flag.sent = True
        return message_id

    def ask_many(self, requests: Sequence[tuple[Request[Any], Any]]) -> None:
        """Queue requests, each with its context, as one portion of bytes: all of them or none."""
        assert not self.closed
        first, packed = self._next_id, bytearray()
        asked: dict[int | None, Question] = {}
        for number, (message, context) in enumerate(requests, first):
            message_id = number & MAX_ID
            packed += encode(message_id, message)
            asked[message_id] = Question(ANSWERS[type(message)], context)
        self._next_id = (first + len(requests)) & MAX_ID
        outgoing, questions, size, portion = self.outgoing, self.questions, len(packed), bytes(packed)
        # Nothing is called between these lines: see send().
        questions |= asked
        outgoing += (portion,)
        self.queued += size

    def answer(self, message_id: int | None, message: Message) -> None:
        """Queue the answer to the request that came with ``message_id``."""
        if not self.closed:
            packet = encode(message_id, message)
            self.outgoing.append(packet)
            self.queued += len(packet)

    def take_outgoing(self) -> bytes:
        """Return all bytes to send, and forget them."""
        outgoing = self.outgoing
        if not outgoing:
            return b""
        data = outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)
        outgoing.clear()
        self.queued = 0
        return data

    # -- receiving -----------------------------------------------------------------------------

    def welcome(self) -> None:
        """Accept longer messages: the peer identified itself, but the master does not vouch for it."""
        if not self.trusted:
            self.decoder.raise_limit(LIMIT_GUEST)

    def trust(self) -> None:
        """Accept the longest messages: the peer is a node of the cluster."""
        if not self.trusted:
            self.trusted = True
            self.decoder.raise_limit(LIMIT_PEER)

    def receive(self, data: bytes) -> Iterator[Received]:
        """Feed ``data`` and return an iterator over the messages that it completes. Raise the errors of
        feed() and take()."""
        self.feed(data)
        return iter(self.take, None)

    def feed(self, data: bytes) -> None:
        """Add received bytes. Raise HandshakeError at the first byte of another handshake: the caller
        must then :meth:`close`."""
        if self._handshake is not None:
            begin = self._handshake + data[: len(HANDSHAKE) - len(self._handshake)]
            check_handshake(begin)
            data = data[len(begin) - len(self._handshake) :]
            self._handshake = None if len(begin) == len(HANDSHAKE) else begin
        if data:
            self._unread.append(data)
            self.more = True

    def take(self) -> Received | None:
        """Return the next whole message; None if more bytes are needed, or if the connection is closed.

        Raise PeerError if the message breaks the protocol: the caller must then :meth:`fail` or
        :meth:`close`.
        """
        decoder = self.decoder
        while not self.closed:
            packet = decoder.take() if decoder.incomplete else None
            if packet is not None:
                self.more = bool(decoder.incomplete or self._unread)
                received = match(self.questions, packet)
                if received.question is not None:
                    del self.questions[received.message_id]
                else:
                    self.last_received_id = received.message_id
                return received
            if not self._unread:
                return None
            portion = self._unread.popleft()
            if not self.trusted and len(portion) > _STRANGER_PORTION:
                self._unread.appendleft(portion[_STRANGER_PORTION:])
                portion = portion[:_STRANGER_PORTION]
            decoder.feed(portion)
        return None

    # -- the end -------------------------------------------------------------------------------

    def fail(self, error: PeerError) -> None:
        """Queue the reason for a peer that broke the protocol, unless it cannot decode it or is leaving.
        The caller then aborts."""
        if not isinstance(error, (HandshakeError, LastWords)):
            code = ErrorCode.PROTOCOL_ERROR.value
            self.answer(self.last_received_id, Error(code, str(error)))
        self.closed = True

    def close(self) -> list[Question]:
        """End: take and give no message any more. Return the questions that get no answer."""
        self.closed = True
        self.outgoing.clear()
        self.queued = 0
        questions = list(self.questions.values())
        self.questions.clear()
        return questions
