"""Packets between peers: sealed with AES-GCM, and accepted once.

A packet is a clear head (addressee and sender, so that a third peer can relay it) and a sealed body.
There are two kinds of keys. Greetings are sealed with a key derived from the configured secret, under
random nonces. All other packets are sealed with keys of a session, derived from a random number of each
side. So a packet of an earlier session, or of another peer, cannot be opened. Within a session a window
of counters rejects duplicates.

Without a secret the key is a constant: packets are checked, but anybody can make them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MAGIC = b"T1"
#: Magic, kind, hops, addressee, sender. Hops are not authenticated, because each relay increments them.
HEAD = struct.Struct(">2sBB8s8s")
GREETING, SEALED = 1, 2
COUNTER = struct.Struct(">Q")
#: The bytes of the head, the counter and the tag of AES-GCM.
OVERHEAD = HEAD.size + COUNTER.size + 16
NUMBER_SIZE = 16
NONCE_SIZE = 12
#: How far packets may be reordered.
WINDOW = 1024


class SealError(Exception):
    """A packet is not from a peer, not of this session, or a duplicate."""


class Packet(NamedTuple):
    kind: int
    hops: int
    to: bytes
    sender: bytes
    head: bytes
    body: bytes


def tag(name: str) -> bytes:
    """Return the identifier of a node in the head of a packet."""
    return hashlib.sha256(name.encode()).digest()[:8]


def parse(data: bytes) -> Packet:
    """Parse a packet. Raises SealError."""
    if len(data) < OVERHEAD or data[:2] != MAGIC:
        raise SealError("not a packet of a transactor")
    _, kind, hops, to, sender = HEAD.unpack_from(data)
    return Packet(kind, hops, to, sender, _authentic(kind, to, sender), data[HEAD.size :])


def relayed(data: bytes) -> bytes:
    """Return the packet with one more hop."""
    return data[:3] + bytes([data[3] + 1]) + data[4:]


def _authentic(kind: int, to: bytes, sender: bytes) -> bytes:
    return HEAD.pack(MAGIC, kind, 0, to, sender)


def _derive(key: bytes, salt: bytes, info: bytes) -> AESGCM:
    return AESGCM(HKDF(SHA256(), 32, salt, info).derive(key))


class Keys:
    """Keys derived from the secret of a cluster."""

    def __init__(self, secret: str, random_bytes: Callable[[int], bytes]) -> None:
        self._master = HKDF(SHA256(), 32, b"neo.transactor", b"master").derive(secret.encode())
        self._greetings = _derive(self._master, b"", b"greetings")
        self._random = random_bytes

    def number(self) -> bytes:
        """Return a random number for a session."""
        return self._random(NUMBER_SIZE)

    def seal_greeting(self, to: bytes, sender: bytes, body: bytes) -> bytes:
        head = _authentic(GREETING, to, sender)
        nonce = self._random(NONCE_SIZE)
        return head + nonce + self._greetings.encrypt(nonce, body, head)

    def open_greeting(self, packet: Packet) -> bytes:
        """Open a greeting. Raises SealError."""
        nonce, sealed = packet.body[:NONCE_SIZE], packet.body[NONCE_SIZE:]
        try:
            return self._greetings.decrypt(nonce, sealed, packet.head)
        except InvalidTag:
            raise SealError("sealed with another key") from None

    def session(self, me: bytes, peer: bytes, mine: bytes, theirs: bytes) -> SealedSession:
        """Return the session of two random numbers, one of each side."""
        salt = b"".join(sorted([mine, theirs]))
        out = _derive(self._master, salt, b"from" + me + peer)
        back = _derive(self._master, salt, b"from" + peer + me)
        return SealedSession(me, peer, out, back)


class SealedSession:
    def __init__(self, me: bytes, peer: bytes, out: AESGCM, back: AESGCM) -> None:
        self._head = _authentic(SEALED, peer, me)
        self._out = out
        self._back = back
        self._sent = 0
        #: The highest counter received, and a bit for each counter at or below it that was received.
        self._highest = 0
        self._seen = 0

    def seal(self, body: bytes) -> bytes:
        self._sent += 1
        counter = COUNTER.pack(self._sent)
        return self._head + counter + self._out.encrypt(b"\0\0\0\0" + counter, body, self._head)

    def open(self, packet: Packet) -> bytes:
        """Open a packet of the peer. Raises SealError."""
        (counter,) = COUNTER.unpack_from(packet.body)
        behind = self._highest - counter
        if behind >= WINDOW or (behind >= 0 and self._seen >> behind & 1):
            raise SealError("a duplicate")
        nonce = b"\0\0\0\0" + packet.body[: COUNTER.size]
        try:
            body = self._back.decrypt(nonce, packet.body[COUNTER.size :], packet.head)
        except InvalidTag:
            raise SealError("sealed for another session") from None
        if behind < 0:
            self._seen = (self._seen << -behind | 1) & ((1 << WINDOW) - 1)
            self._highest = counter
        else:
            self._seen |= 1 << behind
        return body
