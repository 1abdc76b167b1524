"""A content that is removed, and kept again before the removal has begun (specification 26.9)."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from neo.storage.blobs.folder import THREADS, ContentFolder
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.storage.blobs.contents import content_of
from tests.unit.storage.blobs.loop import Loop


def _part_of_another_thread(checksum: bytes) -> str:
    names = (f"part-{number}" for number in range(1000))
    return next(name for name in names if (hash(name) - checksum[0]) % THREADS)


@pytest.mark.parametrize("whole", [False, True])
def test_a_removal_does_not_overtake_a_later_arrival(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """The thread of the checksum is busy, that of the part is not."""
    told: list[object] = []
    loop, busy, go_on = Loop(), Event(), Event()
    folder = ContentFolder(str(tmp_path / "blobs"), loop)
    folder.open(None)
    data, content = b"needed again", content_of(b"needed again")
    part = _part_of_another_thread(content.checksum)

    def store() -> None:
        if whole:
            assert loop.ask(lambda done: folder.store(data, content, False, done)) is None
            return
        assert loop.ask(lambda done: folder.append(part, 0, data, done)) is None
        assert loop.ask(lambda done: folder.keep(part, content, done)) is None

    def listed(path: Any) -> list[str]:
        busy.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return []

    store()
    monkeypatch.setattr(os, "listdir", listed)
    folder.names(content.checksum[0], told.append)
    assert busy.wait(PATIENCE_SECONDS)
    folder.remove(content.checksum, told.append)
    store()
    go_on.set()
    read = loop.ask(lambda done: folder.read(content.checksum, 0, 100, done))
    folder.close()
    assert told == [[], None]
    assert read == data
