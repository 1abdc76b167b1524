"""A storage node compares contents with their checksums, and tells how they are (specification 26.22,
26.23)."""

from __future__ import annotations

from pathlib import Path

import pytest

from neo.protocol.packets import AskContentState, VerifyContents
from tests.unit.storage.blobs.contents import content_of
from tests.unit.storage.blobs.transfers import OID, commit_blob
from tests.unit.storage.world import End, World

PARTITIONS = 2


def path(folder: Path, data: bytes) -> Path:
    name = content_of(data).checksum.hex()
    return folder / name[:2] / name


@pytest.mark.parametrize("damage", ["flip", "shorten", "remove"])
def test_a_damaged_content_is_found(
    world: World,
    master: End,
    client: End,
    folder: Path,
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Specification 26.22."""
    commit_blob(master, client, b"damaged", 12)
    file = path(folder, b"damaged")
    file.chmod(0o600)
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(b"dAmaged" if damage == "flip" else b"dam")
    master.send(VerifyContents(1 - OID % PARTITIONS))
    master.send(VerifyContents(OID % PARTITIONS))
    contents = world.core.blobs.contents
    world.wait(lambda: bool(contents.lost), "the damage is not found")
    assert list(contents.lost) == [content_of(b"damaged").checksum]
    assert "is lost on this node" in caplog.text
    assert master.ask(AskContentState()).lost == 1


def test_intact_contents_are_counted(
    world: World,
    master: End,
    client: End,
) -> None:
    """Specification 26.23."""
    commit_blob(master, client, b"intact", 12)
    master.send(VerifyContents(OID % PARTITIONS))
    master.send(VerifyContents(77))  # there is no such partition
    world.wait(lambda: not world.core.blobs.verifier.left, "it does not end")
    world.wait(lambda: world.core.blobs.sweep.done, "the sweep does not end")
    state = master.ask(AskContentState())
    assert (state.count, state.size, state.lost, state.left) == (1, 6, 0, 0)
    assert state.free > 0


def test_a_file_that_was_put_back_is_not_lost_any_more(
    world: World, master: End, client: End, folder: Path
) -> None:
    """Specification 26.21."""
    commit_blob(master, client, b"moved", 12)
    file = path(folder, b"moved")
    file.rename(folder / "elsewhere")
    contents = world.core.blobs.contents
    master.send(VerifyContents(OID % PARTITIONS))
    world.wait(lambda: bool(contents.lost), "the loss is not found")
    (folder / "elsewhere").rename(file)
    master.send(VerifyContents(OID % PARTITIONS))
    world.wait(lambda: not contents.lost, "it stays lost")
