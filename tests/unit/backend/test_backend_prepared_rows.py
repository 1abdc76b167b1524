"""The rows of prepared transactions, as another program reads them in the tables."""

from __future__ import annotations

from typing import Any

from neo.storage.backend.api import Decided, Prepared
from tests.unit.backend.harness import Harness, p64
from tests.unit.backend.records import rows


def test_a_mark_and_an_outcome_have_their_rows(node: Harness, backend: Any) -> None:
    """Partitions are two bytes each, and a rollback has no tid (specification 14.38, 14.39)."""
    node.vote(backend, 10, {4: b"x"})
    prepared = Prepared(p64(10), b"the xid", 1764040000.5, b"text", [0, 1, 40_000])
    backend.mark_prepared(prepared, [(p64(7), p64(3))])
    columns = "ttid, xid, since, text, partitions"
    partitions = b"\x00\x00\x00\x01\x9c\x40"
    assert rows(node, backend, columns, "prepared") == [
        (10, b"the xid", 1764040000.5, b"text", partitions)
    ]
    assert rows(node, backend, "ttid, oid, serial", "prepared_check") == [(10, 7, 3)]
    backend.decide([Decided(b"a", p64(16), None, 3.5), Decided(b"b", p64(10), p64(13), 5.25)])
    assert rows(node, backend, "xid, ttid, tid, time", "decided") == [
        (b"a", 16, None, 3.5),
        (b"b", 10, 13, 5.25),
    ]
