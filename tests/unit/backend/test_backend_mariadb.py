"""MariaDB: servers that are away, lost, full or that cannot keep the promise of durability."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from neo.storage.backend.api import BackendFailure, BackendRefused, DatabaseAway, TransactionMeta
from neo.storage.backend.mariadb import link as mariadb_link
from neo.storage.backend.mariadb.link import Address, Link, parse
from tests.support.mariadb import Server, running_server
from tests.unit.backend.harness import Harness, p64
from tests.unit.backend.mariadb import kill_writer


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("neo1", (None, None, "neo1", None)),
        ("neo@neo1", ("neo", None, "neo1", None)),
        ("neo:secret@neo1/run/my.sock", ("neo", "secret", "neo1", "/run/my.sock")),
        ("neo:s@c:r/t@neo1", ("neo", "s@c:r/t", "neo1", None)),
        ("neo1~/my.sock", (None, None, "neo1", os.path.expanduser("~/my.sock"))),
    ],
)
def test_the_address_of_a_database(text: str, address: tuple[Any, ...]) -> None:
    """Specification 14.36."""
    assert parse(text) == Address(*address)


@pytest.mark.parametrize("text", ["", "neo@", "@neo1", "a:b/c"])
def test_a_wrong_address_shows_the_right_form(text: str) -> None:
    with pytest.raises(BackendFailure, match=r"\[user\[:password\]@\]database"):
        parse(text)


@contextmanager
def setting(server: Server, name: str, value: object) -> Iterator[None]:
    """A global setting of the server, restored at the end."""
    ((before,),) = server.query(f"SELECT @@GLOBAL.{name}")
    server.query(f"SET GLOBAL {name}={value}")
    try:
        yield
    finally:
        server.query(f"SET GLOBAL {name}={before!r}")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("innodb_flush_log_at_trx_commit", 0, "loses acknowledged transactions.*SET GLOBAL"),
        ("innodb_flush_log_at_trx_commit", 2, "loses acknowledged transactions.*SET GLOBAL"),
        ("max_allowed_packet", 1 << 20, "max_allowed_packet=1048576 is too small.*16M"),
        ("read_only", 1, "server is read-only.*SET GLOBAL read_only=0"),
    ],
)
def test_a_server_that_cannot_keep_the_promise_is_refused(
    mariadb: Harness, mariadb_server: Server, name: str, value: int, message: str
) -> None:
    """Specification 14.34."""
    with (
        setting(mariadb_server, name, value),
        pytest.raises(BackendFailure, match=message),
    ):
        mariadb.open()
    mariadb.open()


def test_a_lenient_sql_mode_of_the_server_does_not_matter(
    mariadb: Harness, mariadb_server: Server
) -> None:
    with setting(mariadb_server, "sql_mode", "'NO_BACKSLASH_ESCAPES'"):
        backend = mariadb.ready()
        mariadb.commit(backend, 10, {4: b"a\\b'c\0d"})
        assert backend.reads.load(p64(4), None, None).data == b"a\\b'c\0d"
        backend.tables.set_config("name", "x" * 300)
        assert "too long" in str(mariadb.failure(backend))


def test_tables_of_another_engine_are_refused(mariadb: Harness) -> None:
    """Specification 14.34."""
    backend = mariadb.ready()
    backend.engine.write("ALTER TABLE obj ENGINE=MyISAM")
    backend.close()
    with pytest.raises(BackendFailure, match="table obj is of engine MyISAM.*ALTER TABLE obj"):
        mariadb.open()


@pytest.mark.parametrize("dropped", [0, 1, 6, 13])
def test_an_erasure_that_was_interrupted_goes_on_at_the_next_start(
    mariadb: Harness, monkeypatch: pytest.MonkeyPatch, dropped: int
) -> None:
    """Specification 4.7: MariaDB commits each statement."""
    backend = mariadb.ready()
    mariadb.commit(backend, 10, {0: b"a"})
    backend.close()
    original, tables = Link.execute, [0]

    def killed(self: Link, sql: str, *arguments: Any) -> Any:
        if sql.startswith("DROP TABLE"):
            if tables[0] == dropped:
                raise BackendFailure("killed")
            tables[0] += 1
        return original(self, sql, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Link, "execute", killed)
        with pytest.raises(BackendFailure, match="killed"):
            mariadb.open(reset=True)
    mariadb.close()
    backend = mariadb.open()
    assert backend.tables.cells() == [] and mariadb.data_rows(backend) == 0
    assert backend.tables.get_config("version") == "3" and backend.tables.get_config("_erasing") is None


def test_a_database_of_another_program_is_refused(mariadb: Harness, mariadb_server: Server) -> None:
    name = parse(mariadb.database).database
    mariadb_server.query(f"CREATE TABLE {name}.songs (title TEXT)")
    with pytest.raises(BackendFailure, match="another program.*songs"):
        mariadb.open()


def test_a_creation_that_was_interrupted_is_finished(
    mariadb: Harness, mariadb_server: Server
) -> None:
    mariadb.open().close()
    name = parse(mariadb.database).database
    mariadb_server.query(f"DROP TABLE {name}.tobj", f"DROP TABLE {name}.data")
    mariadb.open().close()
    tables = ", ".join(f"{name}.{t}" for t in ("pt", "trans", "obj", "data", "ttrans", "tobj"))
    mariadb_server.query(f"DROP TABLE {tables}, {name}.bigdata", f"DELETE FROM {name}.config")
    assert mariadb.ready().tables.get_config("version") == "3"


def test_wrong_credentials_and_names_say_what_to_do(mariadb: Harness) -> None:
    database = mariadb.database.partition("@")[2]
    mariadb.database = f"nobody:secret@{database}"
    with pytest.raises(BackendFailure, match="refuses this user.*GRANT ALL") as raised:
        mariadb.open()
    assert "secret" not in str(raised.value)
    mariadb.database = f"root@missing{parse(database).socket}"
    with pytest.raises(BackendFailure, match="missing.*does not exist. Create it"):
        mariadb.open()


def test_a_server_that_is_away_is_named() -> None:
    node = Harness("MariaDB", "root@neo1/nonexistent/mysqld.sock")
    with pytest.raises(DatabaseAway, match="neo1/nonexistent.*server is away. Start it"):
        node.make().open()


def test_a_server_killed_in_the_middle_loses_nothing_that_was_acknowledged(
    mariadb: Harness, mariadb_server: Server
) -> None:
    backend = mariadb.ready()
    stored: list[int] = []
    for tid in range(1, 50):
        mariadb.commit(backend, tid, {4: b"%d" % tid, 5: b"%d" % tid})
        backend.engine.stored(lambda tid=tid: stored.append(tid))
    mariadb.run_until(lambda: len(stored) > 20)
    mariadb_server.kill()
    try:
        backend.tables.set_config("x", "y")
        backend.engine.stored(lambda: stored.append(-1))
        with pytest.raises(BackendFailure, match="server is away. Start it"):
            backend.reads.load(p64(4), None, None)
        # The callbacks that were on their way, and not the last one.
        while not mariadb.callbacks.empty():
            callback, args = mariadb.callbacks.get()
            callback(*args)
        assert -1 not in stored
        with pytest.raises(BackendFailure, match="server is away"):
            backend.engine.drain()
        backend.close()
        with pytest.raises(BackendFailure, match="server is away"):
            backend.open()
    finally:
        mariadb_server.start()
    backend.open()
    tids = backend.reads.tids_descending(0, 100, [0, 1, 2])
    assert len(tids) >= stored[-1]
    for oid in 4, 5:
        history = [serial for serial, _ in backend.reads.history(p64(oid), 0, 100)]
        assert history == tids


def test_a_lost_connection_is_reported_to_the_loop(
    mariadb: Harness, mariadb_server: Server
) -> None:
    """Specification 14.24."""
    backend = mariadb.ready()
    kill_writer(backend, mariadb_server)
    backend.tables.set_config("x", "y")
    assert "server is away" in str(mariadb.failure(backend))
    with pytest.raises(BackendFailure, match="server is away"):
        backend.tables.set_config("x", "z")
    backend.close()
    backend.open()
    assert backend.tables.get_config("x") is None


def test_a_server_that_hangs_is_given_up(
    mariadb: Harness, mariadb_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = mariadb.ready()
    mariadb.wait(backend.engine.stored)
    backend.close()
    # Not while tables are created, which takes seconds on a busy machine.
    monkeypatch.setattr(mariadb_link, "SILENT_SECONDS", 2)
    backend.open()
    mariadb_server.pause()
    try:
        backend.tables.set_config("x", "y")
        assert isinstance(mariadb.failure(backend), DatabaseAway)
        with pytest.raises(BackendFailure, match="server is away"):
            backend.reads.load(p64(4), None, None)
    finally:
        mariadb_server.resume()
    backend.close()


def test_a_server_that_becomes_read_only_is_reported(
    mariadb: Harness, mariadb_server: Server
) -> None:
    address = parse(mariadb.database)
    mariadb_server.query(
        "CREATE OR REPLACE USER neo IDENTIFIED BY 's/e@c:ret'",
        f"GRANT ALL ON {address.database}.* TO neo",
    )
    mariadb.database = f"neo:s/e@c:ret@{address.database}{address.socket}"
    backend = mariadb.ready()
    mariadb.wait(backend.engine.stored)
    with setting(mariadb_server, "read_only", 1):
        backend.tables.set_config("x", "y")
        failure = str(mariadb.failure(backend))
    assert "server is read-only. SET GLOBAL read_only=0" in failure


def test_a_full_disk_is_reported_and_nothing_is_half_stored() -> None:
    limit = "--innodb-data-file-path=ibdata1:12M:autoextend:max:24M"
    with running_server(limit, "--innodb-file-per-table=0") as server:
        node = Harness("MySQL", server.create_database())
        backend = node.ready()
        stored: list[int] = []
        noise = Random(1)
        for tid in range(1, 100):
            node.vote(backend, tid, {4: noise.randbytes(1 << 20)})
            backend.commits.unlock(p64(tid), p64(tid))
            backend.engine.stored(lambda tid=tid: stored.append(tid))
            node.run_until(lambda tid=tid: node.failures or tid in stored)
            if node.failures:
                break
        assert "no space left. Free space" in str(node.failures[0])
        backend.close()
        backend.open()
        assert [int.from_bytes(s, "big") for s, _ in backend.reads.history(p64(4), 0, 100)] == [
            *reversed(stored)
        ]
        assert backend.commits.locked_transactions() == {}
        node.close()


def test_metadata_longer_than_its_column_is_refused(mariadb: Harness) -> None:
    """Specification 7.21."""
    backend = mariadb.ready()
    long = bytes(65536)
    for what, meta in (
        ("user", TransactionMeta(long, b"", b"", [])),
        ("description", TransactionMeta(b"", long, b"", [])),
        ("extension", TransactionMeta(b"", b"", long, [])),
    ):
        with pytest.raises(BackendRefused, match=f"{what} .* 65536 bytes.*at most 65535"):
            backend.commits.vote(p64(10), meta, [])
    with pytest.raises(BackendRefused, match="2097152 objects"):
        backend.commits.vote(p64(10), TransactionMeta(b"", b"", b"", [p64(1)] * (1 << 21)), [])
    assert backend.commits.locked_transactions() == {}
