"""A client finds the primary master, loses it, and finds it again; close and fork."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from transaction.interfaces import TransientError

import neo.client.connect.storages
import neo.client.storage
from neo.client import NEOStorage
from neo.client.connect.connections import LATE_SECONDS
from neo.client.errors import (
    ClosedError,
    ConfigurationError,
    NEOStorageError,
    RefusedError,
    UnavailableError,
)
from neo.client.host.system import DIAL_SECONDS, System
from neo.master.ids import OidGenerator
from neo.net.connection import Received
from neo.net.sockets import format_address
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeType
from neo.protocol.ids import add64, p64
from neo.protocol.packets import (
    AcceptIdentification,
    AnswerLastTransaction,
    AnswerNewOIDs,
    AskLastTransaction,
    AskNewOIDs,
    AskObject,
    Error,
    InvalidateObjects,
    Message,
    NodeRow,
    NotifyClusterInformation,
    NotifyNodeInformation,
    NotPrimaryMaster,
    RequestIdentification,
)
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.ports import free_range
from tests.unit.client.peers import Peer, Script, Server
from tests.unit.client.reading import DB, OID, answer
from tests.unit.client.scripted import NAME, Scripted, scripted

# -- finding the primary master ------------------------------------------------------------------


def test_a_storage_opens_with_the_last_transaction_of_the_master() -> None:
    """Specification 16.1."""
    with scripted([1]) as (cluster, storage):
        assert storage.lastTransaction() == p64(100)
        request = cluster.master.asked(RequestIdentification)[0]
        assert request == RequestIdentification(
            NodeType.CLIENT, None, None, NAME, None, request.extra
        )


def test_a_secondary_master_points_to_the_primary(tmp_path: Path) -> None:
    with scripted([1]) as (cluster, _):

        def secondary(peer: Peer, received: Received) -> None:
            peer.send(NotPrimaryMaster(1, [server.address, cluster.master.server.address]))

        with serving(secondary) as server:
            known = str(tmp_path / "masters")
            address = format_address(server.address)
            NEOStorage(address, NAME, wait_timeout=10, dynamic_master_list=known).close()


@contextmanager
def serving(script: Script) -> Iterator[Server]:
    server = Server(script)
    try:
        yield server
    finally:
        server.close()


def announce_a_master(cluster: Scripted, storage: NEOStorage) -> None:
    row: NodeRow = (NodeType.MASTER, ("127.0.0.9", 9), None, cluster.rows()[0][3], None)
    cluster.tell(NotifyNodeInformation(time.time(), [row]))
    storage.sync()


def test_masters_that_the_cluster_announces_are_remembered(tmp_path: Path) -> None:
    path = tmp_path / "masters"
    with scripted([1], dynamic_master_list=str(path)) as (cluster, storage):
        announce_a_master(cluster, storage)
        assert ["127.0.0.9", 9] in json.loads(path.read_text())


def test_a_list_of_masters_that_cannot_be_written_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with scripted([1], dynamic_master_list=str(folder / "masters")) as (cluster, storage):
        folder.rmdir()
        announce_a_master(cluster, storage)
        assert "cannot write the list of masters: " in caplog.text
        assert len(cluster.master.asked(RequestIdentification)) == 1


@pytest.mark.parametrize("stopping", [False, True])
def test_the_end_of_a_cluster_that_stops_is_no_loss(
    caplog: pytest.LogCaptureFixture, stopping: bool
) -> None:
    caplog.set_level("INFO", "neo.client")
    with scripted([1]) as (cluster, storage):
        if stopping:
            cluster.tell(NotifyClusterInformation(ClusterState.STOPPING))
            storage.sync()
        cluster.master.peer.close()
        storage.sync()
        assert ("lost: closed by the peer" in caplog.text) is not stopping
        assert ("the cluster stops: connection to primary master" in caplog.text) is stopping


@contextmanager
def identifying(before: Callable[[Peer, Received], bool]) -> Iterator[Scripted]:
    """Yield a cluster whose master accepts a client only if ``before`` returns true."""
    cluster = Scripted([[1]])
    accept = cluster._master_identifies

    def identify(peer: Peer, received: Received) -> None:
        if before(peer, received):
            accept(peer, received)

    cluster.master._identify = identify
    try:
        yield cluster
    finally:
        cluster.close()


def test_an_address_where_nobody_answers_is_told_while_it_is_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def told(peer: Peer, received: Received) -> bool:
        text = f"master {cluster.masters}: connected, but it does not answer yet; check the address"
        wait_until(lambda: text in caplog.text, "it is not logged")
        return True

    with identifying(told) as cluster:
        NEOStorage(cluster.masters, NAME).close()
    assert caplog.text.count("does not answer yet") == 1


def test_a_first_dial_that_nobody_takes_is_told_after_a_second(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, waited = socket.create_connection, []

    def create_connection(address: Any, timeout: float) -> socket.socket:
        waited.append(timeout)
        if len(waited) <= 2:
            raise TimeoutError("timed out")
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", create_connection)
    with scripted([1], wait_timeout=60.0) as (cluster, _):
        assert waited[:2] == [LATE_SECONDS, DIAL_SECONDS]
        assert caplog.text.count(f"master {cluster.masters}: timed out") == 1


def test_a_master_that_is_not_ready_is_tried_again() -> None:
    refused: list[Received] = []

    def ready(peer: Peer, received: Received) -> bool:
        if len(refused) == 3:
            return True
        refused.append(received)
        peer.answer(received.message_id, Error(ErrorCode.NOT_READY.value, "Retry Later"))
        return False

    with identifying(ready) as cluster:
        NEOStorage(cluster.masters, NAME, wait_timeout=10).close()
    assert len(refused) == 3


def test_a_cluster_that_is_away_is_a_transient_error_after_the_wait() -> None:
    """Specification 16.26."""
    port = free_range(1)
    begin = time.monotonic()
    with pytest.raises(UnavailableError, match=f"127.0.0.1:{port}.*refused") as raised:
        NEOStorage(f"127.0.0.1:{port}", NAME, wait_timeout=0.3)
    assert 0.3 <= time.monotonic() - begin
    assert isinstance(raised.value, (NEOStorageError, TransientError))


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        pytest.param(
            Error(ErrorCode.PROTOCOL_ERROR.value, "invalid cluster name"),
            RefusedError,
            "'scripted'.*invalid cluster name",
            id="the wrong name",
        ),
        pytest.param(
            AcceptIdentification(NodeType.STORAGE, 1, None),
            UnavailableError,
            "is not a master",
            id="a storage node",
        ),
    ],
)
def test_what_is_no_master_of_the_cluster_is_not_accepted(
    answer: Message, error: type[Exception], reason: str
) -> None:
    """Specification 3.8, 16.4."""
    with serving(lambda peer, received: peer.answer(received.message_id, answer)) as server:
        with pytest.raises(error, match=reason):
            NEOStorage(format_address(server.address), NAME, wait_timeout=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"master_nodes": ""}, "set master_nodes"),
        ({"master_nodes": "nowhere"}, "write host:port"),
        ({"name": ""}, "set name"),
        ({"compress": 10}, "from 0 to 9"),
        ({"wait_timeout": float("nan")}, "wait_timeout is a number of seconds, not nan"),
        ({"wait_timeout": float("inf")}, "wait_timeout is a number of seconds, not inf"),
        ({"wait_timeout": -1}, "wait_timeout is a number of seconds, not -1"),
        ({"cache_size": -5}, "cache_size is a number of bytes, not -5"),
        ({"ca": "/a"}, "all of ca, cert and key"),
        ({"ca": "/a", "cert": "/b", "key": "/c"}, "'/a' cannot be used"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        NEOStorage(**({"master_nodes": "127.0.0.1:1", "name": NAME} | options))


# -- loss and return of the master ---------------------------------------------------------------


def test_after_a_new_connection_with_a_later_transaction_current_data_is_dropped() -> None:
    """Specification 16.2."""
    with scripted([1]) as (cluster, storage):
        storage.registerDB(db := DB())
        cluster.storages[1].answers[AskObject] = answer(b"old")
        assert storage.load(OID) == (b"old", p64(50))
        cluster.master.peer.close()
        storage.sync()
        assert db.calls == [], "without news the caches stay"
        assert storage.load(OID) == (b"old", p64(50))
        assert len(cluster.storages[1].asked(AskObject)) == 1
        cluster.last_tid = p64(200)
        cluster.storages[1].answers[AskObject] = answer(b"new", 150)
        cluster.master.peer.close()
        storage.sync()
        assert storage.lastTransaction() == p64(200)
        assert db.calls == [("all",), (p64(200),), ("all",)]
        assert storage.load(OID) == (b"new", p64(150))


def test_after_a_truncation_everything_is_dropped() -> None:
    """Specification 16.2."""
    with scripted([1]) as (cluster, storage):
        storage.registerDB(db := DB())
        cluster.storages[1].answers[AskObject] = answer(b"old", 50, 60)
        storage.loadBefore(OID, p64(60))
        cluster.last_tid = p64(40)
        cluster.master.peer.close()
        storage.sync()
        assert storage.lastTransaction() == p64(40)
        assert db.calls == [("all",), (p64(40),), ("all",)]
        storage.loadBefore(OID, p64(60))
        assert len(cluster.storages[1].asked(AskObject)) == 2


def test_invalidations_before_the_answer_of_the_last_transaction_are_ignored() -> None:
    """Specification 16.1."""
    with scripted([1]) as (cluster, storage):
        storage.registerDB(db := DB())

        def last(m: AskLastTransaction) -> Message:
            cluster.master.peer.connection.send(InvalidateObjects(p64(90), [OID]))
            return AnswerLastTransaction(p64(100))

        cluster.master.answers[AskLastTransaction] = last
        cluster.master.peer.close()
        storage.sync()
        assert db.calls == []


def test_a_change_of_a_partition_that_is_not_there_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with scripted([1]) as (cluster, storage):
        cluster.tell(cluster.change((1, 1, CellState.UP_TO_DATE)))
        storage.sync()
        assert "the partition table has 1 rows, none of partition 1" in caplog.text
        cluster.storages[1].answers[AskObject] = answer(b"data")
        assert storage.load(OID)[0] == b"data"


def test_invalidations_reach_zodb_and_the_cache_in_order() -> None:
    """Specification 16.6, 16.11, 23.5."""
    with scripted([1]) as (cluster, storage):
        db = DB()
        storage.registerDB(db)
        cluster.storages[1].answers[AskObject] = answer(b"old")
        storage.load(OID)
        cluster.tell(InvalidateObjects(p64(101), [OID]), InvalidateObjects(p64(102), []))
        storage.sync()
        assert db.calls == [(p64(101), OID), (p64(102),)]
        assert storage.lastTransaction() == p64(102)
        cluster.storages[1].answers[AskObject] = answer(b"new", 101)
        assert storage.load(OID) == (b"new", p64(101))
        assert storage.loadBefore(OID, p64(101)) == (b"old", p64(50), p64(101))


def test_wrappers_are_passed_by_on_the_way_to_the_database() -> None:
    with scripted([1]) as (cluster, storage):
        storage.registerDB(wrapper := DB())
        wrapper.db = db = DB()  # type: ignore[attr-defined]
        cluster.tell(InvalidateObjects(p64(101), [OID]))
        storage.sync()
        assert (wrapper.calls, db.calls) == ([], [(p64(101), OID)])


def test_a_database_that_cannot_take_invalidations_has_its_caches_emptied() -> None:
    with scripted([1]) as (cluster, storage):

        class Broken(DB):
            def invalidate(self, tid: bytes, oids: list[bytes]) -> None:
                super().invalidate(tid, oids)
                raise ValueError("broken")

        db = Broken()
        storage.registerDB(db)
        cluster.tell(InvalidateObjects(p64(101), [OID]))
        storage.sync()
        assert db.calls == [(p64(101), OID), ("all",), (p64(101),), ("all",)]
        assert storage.lastTransaction() == p64(101)


def test_a_new_master_is_asked_for_other_oids() -> None:
    """It allocates some again, since they are not committed; this client's objects have them
    (specification 16.23)."""
    with scripted([1]) as (cluster, storage):
        cluster.master.answers[AskNewOIDs] = _from_the_beginning()
        last = [storage.new_oid() for _ in range(250)][-1]
        cluster.master.peer.close()
        storage.sync()
        cluster.master.answers[AskNewOIDs] = _from_the_beginning()
        assert storage.new_oid() == add64(last, 1)


def _from_the_beginning() -> Callable[[AskNewOIDs], Message]:
    """Return the oids that a master without knowledge of its predecessor allocates."""
    oids = OidGenerator()
    return lambda m: AnswerNewOIDs(oids.take(m.num_oids))


# -- the end and forks ---------------------------------------------------------------------------


def test_close_wakes_threads_that_wait_for_the_cluster() -> None:
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[AskObject] = lambda m: None
        threading.Timer(0.1, storage.close).start()
        with pytest.raises(ClosedError):
            storage.load(OID)


def test_close_wakes_a_thread_whose_node_has_not_accepted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neo.client.connect.storages, "IDENTIFY_SECONDS", 4 * PATIENCE_SECONDS)
    with scripted([1], wait_timeout=8 * PATIENCE_SECONDS) as (cluster, storage):
        node, raised = cluster.storages[1], []
        monkeypatch.setattr(node, "_identify", lambda peer, received: None)

        def load() -> None:
            with pytest.raises(ClosedError) as caught:
                storage.load(OID)
            raised.append(caught.value)

        waiting = threading.Thread(target=load)
        waiting.start()
        node.wait_for(RequestIdentification)
        storage.close()
        waiting.join(PATIENCE_SECONDS)
        assert len(raised) == 1


def test_a_client_that_is_closed_while_it_dials_watches_nothing() -> None:
    """A watcher that begins now would never end."""
    host = System(PATIENCE_SECONDS)
    host.stop()
    ends = socket.socketpair()
    with closing(ends[0]), closing(ends[1]):
        with pytest.raises(OSError, match="closed while it connected"):
            host.watch(host.wire(ends[0], None, PATIENCE_SECONDS), Mock())


def test_a_watch_of_a_closed_client_is_harmless() -> None:
    """A thread that still waits for an answer arms it when it gives up."""
    before = set(threading.enumerate())
    host = System(PATIENCE_SECONDS)
    ends = socket.socketpair()
    with closing(ends[0]), closing(ends[1]):
        watch = host.watch(host.wire(ends[0], None, PATIENCE_SECONDS), Mock())
        host.stop()
        wait_until(lambda: set(threading.enumerate()) <= before, "the watcher goes on")
        watch.arm()
        watch.disarm()
        watch.forget()
        watch.arm()


def test_a_closed_storage_leaves_no_thread_and_no_descriptor() -> None:
    before = set(threading.enumerate())  # other tests may have left storages open
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[AskObject] = answer(b"x")
        storage.load(OID)
        own = {t for t in threading.enumerate() if t.name == "neo-client-watcher"} - before
        assert len(own) == 1
        storage.close()
        wait_until(lambda: not own & set(threading.enumerate()), "the watcher goes on")


class Ordered(list[Any]):
    """Stands for a weak set, in a fixed order."""

    discard = list.remove


@pytest.mark.parametrize("another", ["no other", "a broken one"])
def test_a_forked_child_makes_its_own_connections(
    monkeypatch: pytest.MonkeyPatch, another: str
) -> None:
    """Specification 16.30."""
    with scripted([1], cache_size=0) as (cluster, storage):
        if another == "a broken one":
            # The broken storages may come first or last in the set.
            broken = [Mock(forked=Mock(side_effect=OSError("broken"))) for _ in range(8)]
            monkeypatch.setattr(neo.client.storage, "_storages", Ordered([*broken, storage]))
        cluster.storages[1].answers[AskObject] = answer(b"x")
        assert storage.load(OID)[0] == b"x"
        pid = os.fork()
        if pid == 0:
            try:
                ok = storage.load(OID)[0] == b"x" and storage.new_oid() == p64(1)
                os._exit(0 if ok else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        # The parent still uses its connections.
        assert storage.load(OID)[0] == b"x"
        assert len(cluster.master.asked(RequestIdentification)) == 2
        assert len(cluster.storages[1].asked(RequestIdentification)) == 2
