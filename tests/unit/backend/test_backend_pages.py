"""Pages of revisions, which readers of everything ask for (neo/storage/backend/api.py)."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

import pytest

from neo.storage.backend import pages
from neo.storage.backend.api import Order, PageRequest, RecordDamaged
from tests.unit.backend.harness import Harness, p64

MAX = b"\x7f" + b"\xff" * 7
SNAPSHOT, BY_OID, BY_TID = Order


def page(
    backend: Any,
    order: Order,
    first: int = 0,
    last: bytes | int = MAX,
    after: tuple[int, int] | None = None,
    size: int = 1 << 20,
    data: bool = True,
) -> tuple[list[tuple[int, int, bytes | None]], bool]:
    """([(oid, tid, data)], more) of partition 0."""
    start = None if after is None else (p64(after[0]), p64(after[1]))
    max_tid = p64(last) if isinstance(last, int) else last
    rows, more = backend.revisions(PageRequest(0, order, p64(first), max_tid, start, size, data))
    number = int.from_bytes
    return [(number(oid, "big"), number(tid, "big"), d) for oid, tid, _, _, _, d, _ in rows], more


def keys(*args: Any, **options: Any) -> list[tuple[int, int]]:
    return [row[:2] for row in page(*args, **options)[0]]


def filled(node: Harness) -> Any:
    backend = node.ready()
    node.commit(backend, 10, {6: b"six", 3: b"three", 1: b"of another partition"})
    node.commit(backend, 20, {3: b"three again", 9: b"nine"})
    node.commit(backend, 30, {6: b"six again"})
    return backend


def test_a_snapshot_has_of_each_object_the_last_revision_up_to_a_tid(node: Harness) -> None:
    backend = filled(node)
    assert page(backend, SNAPSHOT) == (
        [(3, 20, b"three again"), (6, 30, b"six again"), (9, 20, b"nine")],
        False,
    )
    assert keys(backend, SNAPSHOT, last=20) == [(3, 20), (6, 10), (9, 20)]
    assert keys(backend, SNAPSHOT, last=19) == [(3, 10), (6, 10)]
    assert keys(backend, SNAPSHOT, last=9) == []
    assert keys(backend, SNAPSHOT, after=(3, 20)) == [(6, 30), (9, 20)]


def test_all_revisions_by_oid_and_by_tid(node: Harness) -> None:
    backend = filled(node)
    assert keys(backend, BY_OID) == [(3, 10), (3, 20), (6, 10), (6, 30), (9, 20)]
    assert keys(backend, BY_OID, first=11, last=20) == [(3, 20), (9, 20)]
    assert keys(backend, BY_OID, after=(3, 10)) == [(3, 20), (6, 10), (6, 30), (9, 20)]
    assert keys(backend, BY_TID) == [(3, 10), (6, 10), (3, 20), (9, 20), (6, 30)]
    assert keys(backend, BY_TID, first=11, last=20) == [(3, 20), (9, 20)]
    assert keys(backend, BY_TID, after=(3, 10)) == [(6, 10), (3, 20), (9, 20), (6, 30)]
    assert keys(backend, BY_TID, first=20, after=(3, 10)) == [(3, 20), (9, 20), (6, 30)]


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("size", [1, 70, 150, 1 << 20])
def test_pages_put_together_are_the_whole(node: Harness, order: Order, size: int) -> None:
    backend = filled(node)
    whole = keys(backend, order)
    found: list[tuple[int, int]] = []
    more = True
    while more:
        rows, more = page(backend, order, after=found[-1] if found else None, size=size)
        assert rows or not more
        found += [row[:2] for row in rows]
    assert found == whole


@pytest.mark.parametrize("order", Order)
def test_pages_of_many_small_revisions_end_by_number(
    node: Harness, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "ROWS_MAX", 2)
    backend = filled(node)
    found: list[tuple[int, int]] = []
    more = True
    while more:
        rows, more = page(backend, order, after=found[-1] if found else None)
        assert len(rows) <= 2
        found += [row[:2] for row in rows]
    monkeypatch.undo()
    assert found == keys(backend, order)


def test_rows_without_data_have_size_and_checksum(node: Harness) -> None:
    backend = filled(node)
    ask = PageRequest(0, SNAPSHOT, p64(0), MAX, (p64(3), p64(20)), 1 << 20, False)
    assert backend.revisions(ask) == (
        [
            (p64(6), p64(30), 0, sha1(b"six again").digest(), 9, None, None),
            (p64(9), p64(20), 0, sha1(b"nine").digest(), 4, None, None),
        ],
        False,
    )


def test_an_object_whose_creation_was_undone_has_no_data(node: Harness) -> None:
    backend = filled(node)
    node.commit(backend, 40, {3: None})
    rows, _ = backend.revisions(PageRequest(0, SNAPSHOT, p64(0), MAX, None, 1 << 20, True))
    assert rows[0] == (p64(3), p64(40), None, bytes(20), 0, None, None)


def test_a_missing_value_is_reported_by_pages(node: Harness) -> None:
    backend = filled(node)
    backend._write("DELETE FROM data WHERE id=(SELECT data_id FROM obj WHERE oid=9)")
    backend.drain()
    with pytest.raises(RecordDamaged, match=r"object 0+9 .* Rebuild"):
        page(backend, SNAPSHOT)
