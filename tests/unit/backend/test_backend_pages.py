"""Pages of revisions, which readers of everything ask for (neo/storage/backend/api.py)."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha1
from typing import Any

import pytest

from neo.storage.backend import pages
from neo.storage.backend.api import ROW_BYTES, Order, PageRequest, RecordDamaged
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
) -> tuple[list[tuple[int, int, bytes | None]], tuple[int, int] | None]:
    """([(oid, tid, data)], where the next page begins) of partition 0."""
    start = None if after is None else (p64(after[0]), p64(after[1]))
    max_tid = p64(last) if isinstance(last, int) else last
    rows, end = backend.pages.revisions(PageRequest(0, order, p64(first), max_tid, start, size, data))
    number = int.from_bytes
    key = None if end is None else (number(end[0], "big"), number(end[1], "big"))
    return [(number(oid, "big"), number(tid, "big"), d) for oid, tid, _, _, _, d, _ in rows], key


def all_keys(*args: Any, rows_max: int = pages.ROWS_MAX, **options: Any) -> list[tuple[int, int]]:
    """Page by page."""
    found: list[tuple[int, int]] = []
    after: tuple[int, int] | None = None
    while True:
        rows, after = page(*args, after=after, **options)
        assert len(rows) <= rows_max
        found += [row[:2] for row in rows]
        if after is None:
            return found


def keys(*args: Any, **options: Any) -> list[tuple[int, int]]:
    return [row[:2] for row in page(*args, **options)[0]]


def filled(node: Harness) -> Any:
    backend = node.ready()
    node.commit(backend, 10, {6: b"six", 3: b"three", 1: b"of another partition"})
    node.commit(backend, 20, {3: b"three again", 9: b"nine"})
    node.commit(backend, 30, {6: b"six again"})
    return backend


def test_a_snapshot_has_of_each_object_the_last_revision_up_to_a_tid(node: Harness) -> None:
    """Specification 6.25."""
    backend = filled(node)
    assert page(backend, SNAPSHOT) == (
        [(3, 20, b"three again"), (6, 30, b"six again"), (9, 20, b"nine")],
        None,
    )
    assert keys(backend, SNAPSHOT, last=20) == [(3, 20), (6, 10), (9, 20)]
    assert keys(backend, SNAPSHOT, last=19) == [(3, 10), (6, 10)]
    assert keys(backend, SNAPSHOT, last=9) == []
    assert keys(backend, SNAPSHOT, after=(3, 20)) == [(6, 30), (9, 20)]


def test_all_revisions_by_oid_and_by_tid(node: Harness) -> None:
    """Specification 6.25."""
    backend = filled(node)
    assert keys(backend, BY_OID) == [(3, 10), (3, 20), (6, 10), (6, 30), (9, 20)]
    assert keys(backend, BY_OID, first=11, last=20) == [(3, 20), (9, 20)]
    assert keys(backend, BY_OID, after=(3, 10)) == [(3, 20), (6, 10), (6, 30), (9, 20)]
    assert keys(backend, BY_TID) == [(3, 10), (6, 10), (3, 20), (9, 20), (6, 30)]
    assert keys(backend, BY_TID, first=11, last=20) == [(3, 20), (9, 20)]
    assert keys(backend, BY_TID, after=(3, 10)) == [(6, 10), (3, 20), (9, 20), (6, 30)]
    assert keys(backend, BY_TID, first=20, after=(3, 10)) == [(3, 20), (9, 20), (6, 30)]


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("first", [1, 2, 50])
def test_pages_put_together_are_the_whole_however_many_rows_are_read_together(
    node: Harness, order: Order, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a page is full with the last of them, and a row is much larger than those before."""
    backend = filled(node)
    node.commit(backend, 40, {3: b"small", 6: b"large" * 100, 9: b"small", 12: b"12"})
    whole = keys(backend, order)
    monkeypatch.setattr(pages, "ROWS_FIRST", first)
    for size in (1, 48, 49, 96, 97, 100, 150, 200, 250, 600, 1 << 20):
        assert all_keys(backend, order, size=size) == whole, size
        rows, _ = page(backend, order, size=size)
        fills = [ROW_BYTES + len(data or b"") for _, _, data in rows]
        assert sum(fills[:-1]) < size


@pytest.mark.parametrize("order", Order)
def test_pages_put_together_are_the_whole_however_few_rows_are_looked_at(
    node: Harness, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = filled(node)
    for first, last in (0, 99), (0, 9), (0, 10), (0, 20), (20, 20), (21, 99):
        whole = keys(backend, order, first, last)
        for rows_max in 1, 2, 3:
            with monkeypatch.context() as patch:
                patch.setattr(pages, "ROWS_MAX", rows_max)
                found = all_keys(backend, order, first, last, rows_max=rows_max)
            assert found == whole, (first, last, rows_max)


def test_rows_without_data_have_size_and_checksum(node: Harness) -> None:
    """Specification 6.25."""
    backend = filled(node)
    ask = PageRequest(0, SNAPSHOT, p64(0), MAX, (p64(3), p64(20)), 1 << 20, False)
    assert backend.pages.revisions(ask) == (
        [
            (p64(6), p64(30), 0, sha1(b"six again").digest(), 9, None, None),
            (p64(9), p64(20), 0, sha1(b"nine").digest(), 4, None, None),
        ],
        None,
    )


def test_an_object_whose_creation_was_undone_has_no_data(node: Harness) -> None:
    backend = filled(node)
    node.commit(backend, 40, {3: None})
    rows, _ = backend.pages.revisions(PageRequest(0, SNAPSHOT, p64(0), MAX, None, 1 << 20, True))
    assert rows[0] == (p64(3), p64(40), None, bytes(20), 0, None, None)


def counter(node: Harness, backend: Any) -> Callable[[], int]:
    """What the database has done for reads: instructions of SQLite, rows that MariaDB looked at."""
    if node.adapter.lower() == "sqlite":
        steps = [0]

        def step() -> None:
            steps[0] += 1

        backend.engine._db.set_progress_handler(step, 1)
        return lambda: steps[0] // 50
    status = "SHOW SESSION STATUS LIKE 'Handler_read%'"
    return lambda: sum(int(number) for _, number in backend.engine.read(status))


def test_a_page_looks_at_a_bounded_number_of_rows(
    node: Harness, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing belongs to it: as of a tid before all others, or of one hot object
    (specification 6.26)."""
    for tid in range(100, 140):
        node.commit(backend, tid, {3: b"hot", **{3 * (50 * tid + n): b"cold" for n in range(50)}})
    backend.engine.read("SELECT 1")
    monkeypatch.setattr(pages, "ROWS_MAX", 20)
    count = counter(node, backend)
    for order, first, last, rows in (
        (SNAPSHOT, 0, 99, 0),
        (SNAPSHOT, 0, 100, 51),
        (SNAPSHOT, 0, 999, 2001),
        (BY_OID, 139, 999, 51),
        (BY_OID, 0, 999, 2040),
        (BY_TID, 139, 999, 51),
    ):
        after: tuple[int, int] | None = None
        found = 0
        while True:
            before = count()
            read, after = page(backend, order, first, last, after)
            assert count() - before < 400, (order, last, found)
            found += len(read)
            if after is None:
                break
        assert found == rows


@pytest.mark.parametrize("first", [1, 2, 50])
def test_large_values_are_read_one_by_one(
    node: Harness, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Of those that the page takes."""
    monkeypatch.setattr(pages, "VALUE_BYTES", 100)
    monkeypatch.setattr(pages, "ROWS_FIRST", first)
    backend = node.ready()
    sizes = {3 * n: 300 if n % 3 == 1 else 30 for n in range(1, 13)}
    values: dict[int, Any] = {oid: bytes([oid]) * length for oid, length in sizes.items()}
    node.commit(backend, 10, values)
    read: list[int] = []
    value_of = backend.values.read

    def value(data_id: int) -> Any:
        read.append(data_id)
        return value_of(data_id)

    monkeypatch.setattr(backend.values, "read", value)
    rows, after = page(backend, BY_OID)
    assert ([(oid, data) for oid, _, data in rows], after) == (sorted(values.items()), None)
    assert len(read) == 4
    read.clear()
    size = sum(ROW_BYTES + length for length in list(sizes.values())[:5])
    rows, after = page(backend, BY_OID, size=size)
    assert ([oid for oid, _, _ in rows], after) == ([3, 6, 9, 12, 15], (15, 10))
    assert len(read) == 2


def test_a_missing_value_is_reported_by_pages(node: Harness) -> None:
    backend = filled(node)
    backend.engine.write("DELETE FROM data WHERE id=(SELECT data_id FROM obj WHERE oid=9)")
    backend.engine.drain()
    with pytest.raises(RecordDamaged, match=r"object 0+9 .* Rebuild"):
        page(backend, SNAPSHOT)
