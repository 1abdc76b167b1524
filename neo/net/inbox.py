"""The received bytes of a client's connection, from the first message on whose effect is not complete.

Theory of operation
-------------------
An exception from outside (a signal's handler, another thread, no memory) may come while a message is
received, decoded or takes effect, and the next leader must find the message as if nothing had
happened. So :meth:`Inbox.first` gives the same message until :meth:`Inbox.drop`, and a message that was
being decoded is decoded once more by a new decoder, from the bytes that are kept for that: those
behind the last whole message, at most :data:`KEPT_BYTES`.

The thread that leads on the channel calls all methods. Received bytes are added to ``portions`` in one
step.
"""

from __future__ import annotations

from neo.net.connection import HANDSHAKE, Connection, Received, check_handshake, match
from neo.protocol.codec import LIMIT_PEER, Decoder
from neo.protocol.errors import ConnectionLost

#: Bytes kept of an incomplete message, besides those in the decoder. An exception that comes while a
#: longer message is decoded ends the connection.
KEPT_BYTES = 16 * 1024 * 1024
#: A message is handled so many times before its failure is taken for permanent.
TRIES = 5


class Inbox:
    def __init__(self, connection: Connection) -> None:
        #: Received bytes that are in no decoded message.
        self.portions: list[bytes] = []
        self._connection = connection
        self._greeted = False
        self._decoder = Decoder(LIMIT_PEER)
        self._fed = 0  # portions that the decoder has
        self._given = 0  # bytes that the decoder has got so far
        self._position = 0  # position of the decoder after the last message
        self._trimmed = 0  # position of the decoder when portions were dropped last
        # Bytes of the first portion that belong to whole messages. Below 0: bytes of an incomplete one
        # that are not kept.
        self._skip = 0
        self._torn = False  # whether an exception came during decoding
        #: The first message, from :meth:`first` to :meth:`drop`.
        self.current: Received | None = None
        self._tries = 0

    @property
    def pending(self) -> bool:
        """Whether received bytes were not examined."""
        return self.current is not None or self._torn or self._fed < len(self.portions)

    def first(self) -> Received | None:
        """Return the first message that was not dropped; None if it has not come.

        Raise PeerError, HandshakeError; ConnectionLost if the message failed too often, or is too long
        to be decoded once more.
        """
        if self.current is not None:
            self._try_again()
            return self.current
        if self._torn:
            self._try_again()
            self._rewind()
        if not self.portions:
            return None
        self._torn = True
        received = None
        if self._greeted or self._greet():
            decoder = self._decoder
            packet = decoder.take() if decoder.incomplete else None
            while packet is None and self._fed < len(self.portions):
                portion = self.portions[self._fed]
                decoder.feed(portion)
                self._given += len(portion)
                self._fed += 1
                packet = decoder.take()
            if packet is not None:
                received = match(self._connection.questions, packet)
                if received.question is None:
                    self._connection.last_received_id = received.message_id
        position = self._decoder.position
        if received is None:
            self._trim(position)
        elif position == self._given and self._fed == len(self.portions):
            # Nothing is called between these lines.
            self.portions = []
            self._fed = self._skip = 0
            self._trimmed = position
        # Nothing is called between these lines: see neo.net.channel.
        self.current = received
        self._position = position
        self._torn = False
        return received

    def drop(self) -> None:
        """Forget the first message: its effect is complete."""
        received = self.current
        if received is not None:
            if received.question is not None:
                self._connection.questions.pop(received.message_id, None)
            self.current = None
            self._tries = 0

    def drop_with(self, outgoing: list[bytes], packed: bytes) -> None:
        """Forget the first message, which is no answer, and queue ``packed``, in one step."""
        # Nothing is called between these lines: see neo.net.channel.
        outgoing += (packed,)
        self.current = None
        self._tries = 0

    def _try_again(self) -> None:
        self._tries += 1
        if self._tries > TRIES:
            raise ConnectionLost("a message could not be handled: see the exceptions logged before")

    def _greet(self) -> bool:
        data = b"".join(self.portions)
        begin = data[: len(HANDSHAKE)]
        check_handshake(begin)
        if len(begin) < len(HANDSHAKE):
            return False
        rest = data[len(begin) :]
        # Nothing is called between these lines.
        self.portions = [rest]
        self._greeted = True
        return True

    def _trim(self, position: int) -> None:
        """Forget the portions that are in whole messages, and all if an incomplete one is too long."""
        portions = self.portions
        skip = self._skip + position - self._trimmed
        done = 0
        while done < len(portions) and skip >= len(portions[done]):
            skip -= len(portions[done])
            done += 1
        rest = portions[done:]
        if (kept := sum(map(len, rest))) > KEPT_BYTES:
            skip -= kept
            done = len(portions)
            rest = []
        fed = self._fed - done
        # Nothing is called between these lines.
        self.portions = rest
        self._fed = fed
        self._skip = skip
        self._trimmed = position

    def _rewind(self) -> None:
        """Let a new decoder decode the bytes after the last message once more."""
        skip = self._skip + self._position - self._trimmed
        if skip < 0:
            raise ConnectionLost("a long message could not be decoded: see the exception logged before")
        rest = b"".join(self.portions)[skip:]
        decoder = Decoder(LIMIT_PEER)
        # Nothing is called between these lines.
        self._decoder = decoder
        self.portions = [rest]
        self._fed = self._given = self._position = self._trimmed = self._skip = 0
