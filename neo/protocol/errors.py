"""Errors of the protocol: errors of a *peer*, and Error packets that a peer *answers*.

Two families, never mixed: :class:`PeerError` is raised when the bytes or messages of a peer break
the rules (only its connection is closed), :class:`ErrorAnswer` carries an Error packet that is a
regular answer. Bugs of this node are ordinary Python exceptions.
"""

from __future__ import annotations

from neo.protocol.enums import ErrorCode


class PeerError(Exception):
    """The peer broke the protocol: log the message, send it as an Error packet, close."""


class LastWords(PeerError):
    """An Error packet that answers no question: the peer says why it ends the connection (``words``)."""

    def __init__(self, words: str) -> None:
        super().__init__(f"the peer says: {words}")
        self.words = words


class HandshakeError(PeerError):
    """The peer does not speak our protocol: nothing that we send could be understood, so only close."""


class StrangerError(HandshakeError):
    """The peer is no NEO node at all: the address is probably wrong."""


class ErrorAnswer(Exception):
    """An Error packet: raised by a handler to answer so, raised to an asker that got it."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    @classmethod
    def of(cls, number: int, message: str) -> ErrorAnswer:
        """From the arguments of an Error packet; a code that we do not know is a broken protocol."""
        try:
            return cls(ErrorCode(number), message)
        except ValueError:
            return cls(ErrorCode.PROTOCOL_ERROR, f"unknown error code {number}: {message}")

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}" if self.message else self.code.name


class ConnectionLost(Exception):
    """The connection ended before the answer came; the message names the peer and the reason."""
