"""Attempts: what follows from one message can be undone alone (specification 14.49)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.storage.backend.api import BackendFailure, StatementRefused
from tests.unit.backend.harness import Harness, p64

_ROW = "INSERT INTO tobj (`partition`, oid, tid, data_id, value_tid) VALUES (1, 4, 20, NULL, NULL)"


def _occupied(node: Harness) -> Any:
    """Return a backend with a row that the vote of transaction 20 would write again."""
    backend = node.ready()
    node.commit(backend, 10, {4: b"before"})
    backend.engine.write(_ROW)
    node.wait(backend.engine.stored)
    return backend


def test_a_refused_statement_fails_the_backend(node: Harness) -> None:
    backend = _occupied(node)
    with pytest.raises(StatementRefused):
        node.vote(backend, 20, {4: b"x"})
        backend.engine.drain()
    with pytest.raises(BackendFailure):
        backend.engine.drain()


def test_an_attempt_is_undone_alone(node: Harness) -> None:
    backend = _occupied(node)
    node.commit(backend, 11, {5: b"earlier, not durable yet"})
    done: list[str] = []
    with pytest.raises(StatementRefused), backend.engine.attempt():
        backend.tables.set_config("lost", "1")
        node.vote(backend, 20, {4: b"x"})
        backend.engine.stored(lambda: done.append("lost"))
    with backend.engine.attempt():
        backend.engine.stored(lambda: done.append("kept"))
        node.vote(backend, 30, {7: b"y"})
    node.run_until(lambda: done)
    assert done == ["kept"]
    assert not node.failures
    backend.engine.drain()
    assert sorted(row[0] for row in node.select(backend, "oid", "tobj")) == [4, 7]
    assert [row[0] for row in node.select(backend, "ttid", "ttrans")] == [30]
    node.wait(backend.engine.stored)
    node.close()
    backend = node.open()
    assert backend.tables.get_config("lost") is None
    assert backend.reads.load(p64(5), None, None).data == b"earlier, not durable yet"


def test_attempts_nest(node: Harness) -> None:
    backend = _occupied(node)
    with backend.engine.attempt():
        node.vote(backend, 30, {7: b"y"})
        with pytest.raises(StatementRefused), backend.engine.attempt():
            node.store_data(backend, 5, b"inner")
            node.vote(backend, 20, {4: b"x"})
        node.vote(backend, 31, {8: b"z"})
        backend.engine.drain()
    assert sorted(row[0] for row in node.select(backend, "ttid", "ttrans")) == [30, 31]


def test_an_attempt_with_another_error_is_kept(node: Harness) -> None:
    backend = node.ready()
    with pytest.raises(KeyError), backend.engine.attempt():
        node.vote(backend, 30, {7: b"y"})
        raise KeyError
    backend.engine.drain()
    assert [row[0] for row in node.select(backend, "ttid", "ttrans")] == [30]


def test_reads_of_an_attempt_see_its_writes(node: Harness) -> None:
    backend = node.ready()
    with backend.engine.attempt():
        data_id = node.store_data(backend, 4, b"x" * 100_000)
        assert backend.values.load_data(data_id)[2] == b"x" * 100_000
