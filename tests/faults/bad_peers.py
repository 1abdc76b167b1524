"""Helpers of tests of bad input: a cluster with a well-behaved client, and raw peers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import transaction
from ZODB.DB import DB

from neo.protocol.enums import NodeType
from neo.protocol.packets import (
    AcceptIdentification,
    Address,
    NotifyNodeInformation,
    RequestIdentification,
)
from tests.support.cluster import Cluster
from tests.support.patience import wait_until
from tests.support.raw import RawPeer

NAME = "lab"
ROLES = ("master", "storage", "admin")


class Patient:
    """A cluster of real processes, with a client that commits before and after each test."""

    def __init__(self, **options: Any) -> None:
        self._stack = ExitStack()
        self._options = options
        self._read: dict[str, int] = {}
        self.commits = 0

    def __enter__(self) -> Patient:
        with ExitStack() as stack:
            self.cluster = stack.enter_context(Cluster(**{"name": NAME, **self._options})).simple
            self.db = self._open()
            stack.callback(self.db.close)
            self._stack = stack.pop_all()
        self.commit()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def _open(self) -> DB:
        from neo.client import Storage

        tls = {
            name: value
            for name in ("ca", "cert", "key")
            if (value := self._options.get(name)) is not None
        }
        return DB(Storage(self.cluster.masters, NAME, **tls))

    def commit(self) -> None:
        """Write objects in many partitions, and read them back with another connection."""
        self.commits += 1
        manager = transaction.TransactionManager()
        connection = self.db.open(manager)
        try:
            root = connection.root()
            for number in range(5):
                root.setdefault(number, type(root)())["commits"] = self.commits
            manager.commit()
        finally:
            manager.abort()
            connection.close()

    def check(self) -> None:
        """Check that all processes run and the client can commit."""
        self.commit()
        self.cluster.check()

    def address(self, role: str) -> Address:
        return self.cluster.conf.of_role(role)[0].address

    # -- logs ------------------------------------------------------------------------------------

    def mark(self) -> None:
        """Ignore what is in the logs now."""
        for name in self.cluster.processes:
            self._read[name] = len(self._text(name))

    def _text(self, name: str) -> str:
        path: Path = self.cluster.log(name)
        return path.read_text() if path.exists() else ""

    def logged(self, role: str, text: str, ever: bool = False) -> None:
        """Wait until a line with ``text`` is in the log of the first node of a role. Lines before
        mark() do not count, except with ``ever``."""
        name = next(name for name in self.cluster.processes if name.startswith(role))

        begin = 0 if ever else self._read.get(name, 0)

        def there() -> bool:
            return text in self._text(name)[begin:]

        try:
            wait_until(there, f"{text!r} in the log of {name}")
        except AssertionError as e:
            raise AssertionError(f"{e}:\n{self._text(name)[self._read.get(name, 0) :]}") from None

    # -- raw peers -------------------------------------------------------------------------------

    def connect(self, role: str) -> RawPeer:
        """Return a raw peer of a node, after the handshake."""
        peer = RawPeer(self.address(role))
        try:
            peer.greet()
        except BaseException:
            peer.__exit__()
            raise
        return peer

    def client_of_master(self) -> tuple[RawPeer, RequestIdentification]:
        """Return a client that the master accepted, and its request for storage nodes."""
        peer = self.connect("master")
        accepted = peer.ask(RequestIdentification(NodeType.CLIENT, None, None, NAME, None, {}))
        assert isinstance(accepted, AcceptIdentification), accepted
        nodes = peer.expect(NotifyNodeInformation).node_list
        id_timestamp = next(row[4] for row in nodes if row[2] == accepted.your_nid)
        nid = accepted.your_nid
        return peer, RequestIdentification(NodeType.CLIENT, nid, None, NAME, id_timestamp, {})

    def client_of_storage(self, request: RequestIdentification) -> RawPeer:
        """Return a client that a storage node accepted."""
        peer = self.connect("storage")
        accepted = peer.ask(request)
        assert isinstance(accepted, AcceptIdentification), accepted
        return peer
