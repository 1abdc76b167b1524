"""A wrong master, or one that sends wrong messages: nodes log that, and look for a master again."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from neo.net.connection import HANDSHAKE
from neo.protocol.codec import LIMIT_PEER, Decoder, encode
from neo.protocol.enums import CellState, NodeState, NodeType
from neo.protocol.packets import (
    AcceptIdentification,
    Error,
    Message,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    NotPrimaryMaster,
    Pong,
    RequestIdentification,
    SendPartitionTable,
)
from tests.faults.bad_peers import NAME
from tests.support.patience import PATIENCE_SECONDS, wait_until

ACCEPT = AcceptIdentification(NodeType.MASTER, -0x0FFFFFFF, 1)


class FakeMaster:
    """Listens, and does with each connection what the test says."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_SECONDS)
        self.port: int = self._listener.getsockname()[1]

    def close(self) -> None:
        self._listener.close()

    def accept(self) -> socket.socket:
        """Return the next connection. Raise TimeoutError."""
        connection, _ = self._listener.accept()
        connection.settimeout(PATIENCE_SECONDS)
        return connection

    def identify(self) -> tuple[socket.socket, int]:
        """Return a node that connected, after its handshake and request, and the id of the request."""
        connection = self.accept()
        connection.sendall(HANDSHAKE)
        decoder = Decoder(LIMIT_PEER)
        head = b""
        while len(head) < len(HANDSHAKE):
            head += connection.recv(len(HANDSHAKE) - len(head))
        while (packet := decoder.take()) is None:
            decoder.feed(connection.recv(65536))
        assert type(packet.message) is RequestIdentification
        assert packet.message_id is not None
        return connection, packet.message_id


class Node:
    """A storage or admin node, and the fake master, which is its only master."""

    def __init__(self, role: str, folder: Path) -> None:
        self.master = FakeMaster()
        self._log = folder / f"{role}.log"
        self._read = 0
        command = [sys.executable, "-m", f"neo.{role}", "-c", NAME, "-b", "127.0.0.1:0"]
        command += ["-m", f"127.0.0.1:{self.master.port}", "-l", str(self._log)]
        if role == "storage":
            command += ["-d", str(folder / "node.sqlite")]
        self.process = subprocess.Popen(command)

    def _text(self) -> str:
        return self._log.read_text()[self._read :] if self._log.exists() else ""

    def mark(self) -> None:
        """Ignore what is in the log now."""
        self._read += len(self._text())

    def logged(self, text: str) -> None:
        try:
            wait_until(lambda: text in self._text(), repr(text))
        except AssertionError as e:
            raise AssertionError(f"{e}:\n{self._text()}") from None

    def stop(self) -> None:
        """Stop the node, which must still run and end cleanly."""
        try:
            assert self.process.poll() is None, self._log.read_text()
            self.process.terminate()
            assert self.process.wait(PATIENCE_SECONDS) == 0, self._log.read_text()
        finally:
            self.process.kill()
            self.process.wait()
            self.master.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Yield nodes that run through all tests. At the begin of each they look for the master."""
    folder = tmp_path_factory.mktemp("nodes")
    with ExitStack() as stack:
        nodes = []
        for role in ("storage", "admin"):
            nodes.append(Node(role, folder))
            stack.callback(nodes[-1].stop)
        yield nodes


@pytest.fixture
def nodes(running: list[Node]) -> list[Node]:
    for node in running:
        node.mark()
    return running


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the peer is not a NEO node, it began with b'HTTP/1'"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "the peer uses TLS and this node does not"),
        (HANDSHAKE + b"\x93\x00\x06\x92\xc6\x7f\xff\xff\xff", "2147483647 bytes are announced"),
        (HANDSHAKE + encode(0, Error(6, "go away")), "it refused: PROTOCOL_ERROR: go away"),
        (HANDSHAKE + encode(0, Pong()), "AcceptIdentification expected, got Pong"),
        (HANDSHAKE + encode(0, NotPrimaryMaster(7, [])), "it is not the primary"),
    ],
    ids=["http", "tls", "gigabytes", "refusal", "answer", "secondary"],
)  # fmt: skip
def test_who_is_no_primary_master(nodes: list[Node], data: bytes, reason: str) -> None:
    for node in nodes:
        with node.master.accept() as connection:
            connection.sendall(data)
            assert connection.recv(len(HANDSHAKE), socket.MSG_WAITALL) == HANDSHAKE
            _read_until_closed(connection)
    for node in nodes:
        node.logged(reason)


def test_a_master_that_closes_without_a_word(nodes: list[Node]) -> None:
    for node in nodes:
        connection, _ = node.master.identify()
        connection.close()
    for node in nodes:
        node.logged("ended: closed by the peer")


def _read_until_closed(connection: socket.socket) -> None:
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass  # closed with bytes of ours unread


TABLE = SendPartitionTable(1, 0, [[(1, CellState.UP_TO_DATE)]])
MYSELF = NotifyNodeInformation(
    1.0, [(NodeType.STORAGE, ("127.0.0.1", 1), 1, NodeState.RUNNING, 1.0)]
)


@pytest.mark.parametrize(
    "lie",
    [
        NotifyPartitionChanges(2, 0, [(1000, 1, CellState.UP_TO_DATE)]),
        NotifyPartitionChanges(2, 0, [(-1, 1, CellState.UP_TO_DATE)]),
        ACCEPT,
        Pong(),
        RequestIdentification(NodeType.MASTER, 1, None, NAME, None, {}),
    ],
    ids=lambda lie: type(lie).__name__,
)
def test_a_master_that_lies(nodes: list[Node], lie: Message) -> None:
    for node in nodes:
        connection, message_id = node.master.identify()
        with connection:
            messages = [(message_id, ACCEPT), (0, MYSELF), (1, TABLE), (2, lie)]
            connection.sendall(b"".join(encode(*message) for message in messages))
            _read_until_closed(connection)
    for node in nodes:
        node.logged("broke the protocol")
        node.logged("lost the primary master")
