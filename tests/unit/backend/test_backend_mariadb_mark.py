"""MariaDB: a server that lost what it acknowledged is found by the process that was told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from neo.storage.backend.api import DatabaseAway, WentBack
from tests.support.mariadb import running_server
from tests.unit.backend.harness import Harness


def test_a_server_that_lost_what_it_acknowledged_is_refused_by_the_process_that_was_told(
    tmp_path: Path,
) -> None:
    with running_server() as server:
        node = Harness("MySQL", server.create_database())
        backend = node.ready()
        node.commit(backend, 1, {1: b"1"})
        node.wait(backend.stored)
        server.kill()
        shutil.copytree(server.data, tmp_path / "old")
        server.start()
        with pytest.raises(DatabaseAway):
            backend.close()
        backend.open()
        node.commit(backend, 2, {1: b"2"})
        node.wait(backend.stored)
        server.kill()
        server.data.rename(tmp_path / "true")
        shutil.copytree(tmp_path / "old", server.data)
        server.start()
        with pytest.raises(DatabaseAway):
            backend.close()
        for _ in range(2):
            with pytest.raises(WentBack, match="log of the server.*stop this process and start it"):
                backend.open()
        # Another process was told nothing, and the operator may mean it.
        other = node.open()
        assert other.load(bytes(7) + b"\1", None, None).data == b"1"
        other.close()
        backend.open(reset=True)
        node.close()


def test_an_empty_database_is_not_taken_for_the_one_in_use(mariadb: Harness) -> None:
    backend = mariadb.ready()
    mariadb.commit(backend, 1, {1: b"1"})
    mariadb.wait(backend.stored)
    backend.close()
    other = mariadb.open(reset=True)
    other.close()
    with pytest.raises(WentBack, match="it is not the database that this node used last"):
        backend.open()
