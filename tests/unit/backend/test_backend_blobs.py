"""References of values to contents, as every backend keeps them (specification 26.8, 14.41, 14.42)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neo.protocol.blobs import with_content
from neo.protocol.enums import CellState
from neo.storage.backend import blobs
from neo.storage.backend.api import FIRST_PLACE, Place
from tests.unit.backend.harness import Harness, p64
from tests.unit.storage.blobs.contents import content_of

ONE, TWO = content_of(b"one"), content_of(b"two!")
A, B = with_content(b"a", ONE), with_content(b"b", TWO)


def rows(node: Harness, backend: Any) -> int:
    return len(node.select(backend, "data_id", "content"))


def test_a_value_with_a_reference_has_a_row(node: Harness, backend: Any) -> None:
    assert not backend.blobs.has_content(ONE.checksum)
    node.commit(backend, 11, {4: A, 5: b"plain", 7: B})
    assert backend.blobs.has_content(ONE.checksum)
    assert backend.blobs.contents(b"", 10) == sorted([ONE, TWO], key=lambda each: each.checksum)
    assert backend.blobs.contents(b"", 1) == [min(ONE, TWO, key=lambda each: each.checksum)]
    assert backend.blobs.contents(max(ONE.checksum, TWO.checksum), 10) == []
    assert [found.content for found in backend.blobs.references(1, 0, 10)] == [ONE, TWO]
    assert [found.content for found in backend.blobs.references(2, 0, 10)] == []
    first = backend.blobs.references(1, 0, 1)
    assert [found.content for found in backend.blobs.references(1, first[0].data_id, 10)] == [TWO]
    assert backend.blobs.objects_with(ONE.checksum, 10) == [(p64(4), p64(11))]
    assert backend.blobs.content_totals() == (2, 7)


def test_groups_of_contents_are_those_of_the_time_of_writing(node: Harness) -> None:
    backend = node.ready(5)
    assert backend.blobs.content_groups() == []
    node.commit(backend, 11, {4: A, 6: B, 2: b"plain"})
    assert backend.blobs.content_groups() == [1, 4]
    assert backend.regrouping.begin_regrouping(2) == ""
    place: Place | None = FIRST_PLACE
    while place is not None:
        place = backend.regrouping.regroup(place, 100)
    backend.regrouping.switch_partitions(2)
    node.commit(backend, 12, {9: with_content(b"c", content_of(b"three"))})
    assert backend.blobs.content_groups() == [1, 4]
    assert [found.content for found in backend.blobs.references(4, 0, 10)] == [ONE]
    assert [found.content for found in backend.blobs.references(1, 0, 10)] == [TWO, content_of(b"three")]


def test_a_voted_value_has_a_reference_and_a_stored_one_has_a_row(
    node: Harness, backend: Any
) -> None:
    backend.values.store_data(p64(4), 0, b"h" * 20, A)
    assert backend.blobs.has_content(ONE.checksum)
    assert backend.blobs.references(1, 0, 10) == []
    backend.values.store_data(p64(7), 1, b"h" * 20, B)
    assert not backend.blobs.has_content(TWO.checksum), "what is compressed refers to nothing"
    node.vote(backend, 10, {7: B})
    assert [found.content for found in backend.blobs.references(1, 0, 10)] == [TWO]


def test_an_undo_shares_the_content(node: Harness, backend: Any) -> None:
    for tid, data in (11, A), (12, B), (13, 11):
        node.commit(backend, tid, {4: data})
    assert backend.blobs.objects_with(ONE.checksum, 10) == [(p64(4), p64(11)), (p64(4), p64(13))]
    backend.maintenance.pack(p64(13), 1, p64(0), 10)
    assert backend.blobs.freed_contents() == {TWO.checksum}
    assert backend.blobs.has_content(ONE.checksum)
    assert backend.blobs.freed_contents() == set()


def test_equal_contents_of_two_values(node: Harness, backend: Any) -> None:
    node.commit(backend, 11, {4: A, 5: with_content(b"other", ONE)})
    assert backend.blobs.content_totals() == (1, 3)
    backend.maintenance.truncate(p64(1), [1])
    assert backend.blobs.freed_contents() == {ONE.checksum}
    assert backend.blobs.has_content(ONE.checksum)


def _abort(node: Harness, backend: Any) -> None:
    node.vote(backend, 20, {4: A})
    backend.commits.abort(p64(20))


def _release(node: Harness, backend: Any) -> None:
    backend.values.release_data([backend.values.store_data(p64(4), 0, b"h" * 20, A)])


def _truncate(node: Harness, backend: Any) -> None:
    node.commit(backend, 20, {4: A})
    backend.maintenance.truncate(p64(11), [0, 1, 2])


def _delete(node: Harness, backend: Any) -> None:
    node.commit(backend, 20, {4: A})
    backend.replication.delete_objects([(p64(20), p64(4))])


def _pack(node: Harness, backend: Any) -> None:
    node.commit(backend, 20, {4: A})
    node.commit(backend, 21, {4: b"plain"})
    backend.maintenance.pack(p64(21), 1, p64(0), 10)


def _drop(node: Harness, backend: Any) -> None:
    node.commit(backend, 20, {4: A})
    backend.tables.change_cells(2, 0, [(1, 1, CellState.DISCARDED)], 1, False)
    while backend.maintenance.drop_partition(1, 10):
        pass


@pytest.mark.parametrize("remove", [_abort, _release, _truncate, _delete, _pack, _drop])
def test_whatever_deletes_a_value_frees_its_content(
    node: Harness, backend: Any, remove: Callable[[Harness, Any], None]
) -> None:
    node.commit(backend, 10, {5: B})
    remove(node, backend)
    assert backend.blobs.freed_contents() == {ONE.checksum}
    assert not backend.blobs.has_content(ONE.checksum)
    assert backend.blobs.has_content(TWO.checksum)
    backend.engine.drain()
    assert rows(node, backend) == 1


@pytest.mark.parametrize("value", [b"plain", B])
def test_a_row_that_a_crash_left_is_not_taken_by_another_value(
    node: Harness, backend: Any, value: bytes
) -> None:
    """Specification 26.8: the value was deleted, and its row of ``content`` was not yet."""
    node.commit(backend, 20, {4: A})
    backend.replication.delete_objects([(p64(20), p64(4))])
    backend = node.restart(backend)
    node.commit(backend, 21, {4: value})
    assert not backend.blobs.has_content(ONE.checksum)
    assert backend.blobs.has_content(TWO.checksum) == (value == B)
    assert backend.blobs.forget_freed(0, 10) is None
    backend.engine.drain()
    assert rows(node, backend) == (value == B)


def test_orphans_free_their_contents(node: Harness, backend: Any) -> None:
    backend.values.store_data(p64(4), 0, b"h" * 20, A)
    backend = node.restart(backend)
    assert backend.blobs.has_content(ONE.checksum)
    backend.maintenance.prune_orphans(False, 0, 10)
    assert backend.blobs.freed_contents() == {ONE.checksum}


def test_too_many_deletions_are_not_remembered(
    node: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "COLLECTED_MAX", 2)
    backend = node.ready()
    for tid in range(11, 15):
        node.commit(backend, tid, {4: with_content(b"%d" % tid, content_of(b"%d" % tid))})
    backend.maintenance.truncate(p64(1), [1])
    assert backend.blobs.freed_contents() is None
    assert backend.blobs.freed_contents() == set()
    assert rows(node, backend) == 4
    assert backend.blobs.contents(b"", 10) == []
    step: int | None = 0
    while step is not None:
        step = backend.blobs.forget_freed(step, 2)
    backend.engine.drain()
    assert rows(node, backend) == 0


def test_deduplication_keeps_one_row(node: Harness) -> None:
    backend = node.ready(dedup=True)
    node.commit(backend, 11, {4: A})
    node.commit(backend, 12, {4: A})
    assert rows(node, backend) == 1
    assert backend.blobs.objects_with(ONE.checksum, 10) == [(p64(4), p64(11)), (p64(4), p64(12))]


def test_the_view_shows_contents_by_object(node: Harness, backend: Any) -> None:
    node.commit(backend, 11, {4: A})
    columns = "`partition`, oid, tid, size, checksum"
    (found,) = node.select(backend, columns, "show_content")
    row = tuple(each.decode() if isinstance(each, bytes) else each for each in found)
    assert row == (1, f"{4:016x}", f"{11:016x}", 3, ONE.checksum.hex())


def test_a_reset_forgets_contents(node: Harness, backend: Any) -> None:
    node.commit(backend, 11, {4: A})
    node.close()
    backend = node.open(reset=True)
    assert backend.blobs.contents(b"", 10) == []
    assert not backend.blobs.has_content(ONE.checksum)
