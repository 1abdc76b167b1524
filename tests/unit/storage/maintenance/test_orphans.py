"""What a crash left in the table of data is deleted at the next start (specification 14.50)."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from neo.protocol.blobs import Content, content_hash, with_content
from neo.protocol.ids import p64
from neo.storage.maintenance.cleanup import CLOSED
from tests.unit.storage.pauses import in_pauses, slow_clock
from tests.unit.storage.requests import commit, data_of, load, store
from tests.unit.storage.world import MakeWorld, World


def _ids(world: World) -> list[int]:
    return [row[0] for row in world.backend.engine.read("SELECT id FROM data ORDER BY id")]


def _kill(world: World) -> None:
    """End the process; what is durable stays."""
    world.settle()
    world.core.abandon()
    world.core.blobs.close()
    world.backend.close()


def test_data_of_a_transaction_that_did_not_vote_is_deleted(make_world: MakeWorld) -> None:
    world = make_world()
    master = world.operate()
    client = world.client(master)
    commit(master, client, 10, 12, 1)
    store(client, 20, 3)
    _kill(world)
    world = make_world()
    assert len(_ids(world)) == 2
    client = world.client(world.operate())
    world.wait(lambda: len(_ids(world)) == 1, "the data stays")
    assert load(client, 1).data == data_of(10)


def test_data_of_a_transaction_in_progress_stays(make_world: MakeWorld) -> None:
    world = make_world()
    client = world.client(world.operate())
    store(client, 10, 3)
    _kill(world)
    world = make_world()
    master = world.operate()
    client = world.client(master)
    store(client, 20, 1)
    world.wait(lambda: len(_ids(world)) == 1, "the data stays")
    world.settle()
    commit(master, client, 30, 32, 3)
    assert len(_ids(world)) == 2


def test_a_clean_end_needs_no_sweep(make_world: MakeWorld) -> None:
    world = make_world()
    client = world.client(world.operate())
    store(client, 10, 1)
    world.settle()
    world.close()
    world = make_world()
    assert world.backend.tables.get_config(CLOSED) is None  # for the next crash
    assert not world.core.orphans._wanted
    assert _ids(world) == []


def test_a_sweep_that_did_not_end_is_made_again(make_world: MakeWorld) -> None:
    world = make_world()
    world.close()  # it never began to operate: no sweep
    world = make_world()
    assert world.core.orphans._wanted
    world.operate()
    world.wait(lambda: not world.core.orphans._wanted, "the sweep does not end")
    world.close()
    assert not make_world().core.orphans._wanted


def test_the_sweep_gives_way_to_clients(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neo.storage.maintenance.cleanup.STEP_LENGTH", 1)
    world = make_world()
    master = world.operate()
    client = world.client(master)
    commit(master, client, 10, 12, 1)
    for number in range(5):
        store(client, 20, 3 + 2 * number)
    _kill(world)
    world = make_world()
    monkeypatch.setattr(world.host, "monotonic", slow_clock(world, 0.001))
    client = world.client(world.operate())
    load(client, 1)
    counts = in_pauses(world, lambda: load(client, 1), lambda: len(_ids(world)))
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) > 1


@pytest.fixture
def make_with_folder(tmp_path: Path) -> Any:
    worlds: list[World] = []

    def make() -> World:
        worlds.append(World(str(tmp_path / "db"), blob_dir=str(tmp_path / "blobs")))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


def test_a_content_goes_with_its_data(
    make_with_folder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    text = b"the content of a blob"
    digest = content_hash()
    digest.update(text)
    content = Content(len(text), digest.digest())
    world = make_with_folder()
    world.operate()
    contents = world.core.blobs.contents
    done: list[object] = []
    contents.hold(content.checksum)
    world.folder.append("part", 0, text, done.append)
    contents.keep("part", content, done.append)
    world.wait(lambda: len(done) == 2, "the content is not kept")
    assert done == [None, None]
    record = with_content(b"record", content)
    world.backend.values.store_data(p64(1), 0, sha1(record).digest(), record)
    file = world.folder.file(content.checksum)
    assert file.exists()
    _kill(world)
    caplog.set_level("INFO", "neo.storage")
    world = make_with_folder()
    world.operate()
    world.wait(lambda: not _ids(world), "the data stays")

    def gone() -> bool:
        world.host.advance(1)
        return not file.exists()

    world.wait(gone, "the file stays")
    assert f"left are deleted: 1 ({len(record) + len(text)} bytes)" in caplog.text
