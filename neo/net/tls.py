"""TLS without IO: certificates are mandatory on both sides of every link.

The event loop and the blocking channel give and take raw bytes. One thread may read while another
writes, but two threads must not use an SSL object at once. So each call takes a lock, and none does IO.
"""

from __future__ import annotations

import ssl
from threading import Lock

from neo.net.connection import TLS_RECORDS
from neo.net.sockets import READ_SIZE
from neo.protocol.errors import HandshakeError

#: Fatal alert *protocol_version*, for a peer without TLS: it tells that peer that this node uses TLS.
_ALERT = bytes.fromhex("15030300020246")


def tls_context(ca: str, cert: str, key: str, server: bool) -> ssl.SSLContext:
    """Return the context of one direction. Raise ValueError with the name of an unusable file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Nodes are known by their certificate authority; their addresses change.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as e:
        raise ValueError(f"certificate authority {ca!r} cannot be used: {e}") from None

    def refuse() -> bytes:
        """Refuse to give a passphrase: without this, OpenSSL waits for one at the terminal."""
        raise ValueError(
            f"key {key!r} is encrypted, and a node cannot ask for its passphrase when it starts: "
            f"write it without one (openssl pkey -in {key} -out …), readable by the node's user only"
        )

    try:
        context.load_cert_chain(cert, key, refuse)
    except (OSError, ssl.SSLError) as e:
        raise ValueError(f"certificate {cert!r} with key {key!r} cannot be used: {e}") from None
    return context


def _failure(error: ssl.SSLError) -> HandshakeError:
    """``reason`` comes from this node's check, or from the alert that tells the peer's."""
    reason = getattr(error, "verify_message", "") or error.reason or str(error)
    return HandshakeError(
        f"TLS failed: {reason.replace('_', ' ').lower()}; each node needs a certificate that is "
        "valid now, of the same authority"
    )


class TlsLink:
    """One TLS session: plaintext on one side, raw bytes on the other."""

    def __init__(self, context: ssl.SSLContext, server: bool) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=server)
        self._established = False
        self._first = True
        self._waiting: list[bytes] = []
        self._lock = Lock()

    def start(self) -> bytes:
        """Return the raw bytes to send first: the dialer's hello; none for the server."""
        with self._lock:
            self._handshake()
            return self._outgoing.read()

    def _handshake(self) -> None:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as e:
            raise _failure(e) from None
        self._established = True
        for data in self._waiting:
            self._ssl.write(data)
        self._waiting.clear()

    def encrypt(self, data: bytes) -> bytes:
        """Return the raw bytes to send for this plaintext, which is kept until the handshake is over."""
        with self._lock:
            if self._established:
                self._ssl.write(data)
            elif data:
                self._waiting.append(data)
            return self._outgoing.read()

    def decrypt(self, raw: bytes) -> bytes:
        """Return the plaintext of received bytes. :meth:`outgoing` has the bytes to send back. Raise
        HandshakeError: see :meth:`farewell`."""
        with self._lock:
            if self._first and raw:
                self._first = False
                if raw[0] not in TLS_RECORDS:
                    self._outgoing.write(_ALERT)
                    raise HandshakeError(
                        "this node uses TLS and the peer does not: give all nodes ca, cert and "
                        f"key, or none (it began with {raw[:16]!r})"
                    )
            self._incoming.write(raw)
            if not self._established:
                self._handshake()
            portions = []
            try:
                while self._established:
                    portion = self._ssl.read(READ_SIZE)
                    if not portion:
                        break
                    portions.append(portion)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                pass  # the end of the stream follows on the socket
            except ssl.SSLError as e:
                raise _failure(e) from None
            return b"".join(portions)

    @property
    def pending(self) -> bool:
        """Whether there are raw bytes to send."""
        return self._outgoing.pending > 0

    def outgoing(self) -> bytes:
        """Return raw bytes to send. Like those of :meth:`encrypt`, they must be sent in the order in
        which they were taken: take and send them under one lock."""
        with self._lock:
            return self._outgoing.read()

    def farewell(self) -> bytes:
        """Return raw bytes to send before the connection is closed: its end, or after a HandshakeError,
        why."""
        with self._lock:
            if self._established:
                try:
                    self._ssl.unwrap()
                except ssl.SSLError:
                    pass  # the peer did not close yet, or the session is broken and has its own alert
            return self._outgoing.read()
