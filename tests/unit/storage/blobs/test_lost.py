"""A storage node names the revisions whose contents it lost (specification 26.23)."""

from __future__ import annotations

from pathlib import Path

from neo.protocol.ids import p64
from neo.protocol.packets import AskLostContents, VerifyContents
from tests.unit.storage.blobs.contents import content_of
from tests.unit.storage.blobs.transfers import OID, commit_blob
from tests.unit.storage.world import End, World


def test_names_object_transaction_and_content(
    world: World, master: End, client: End, folder: Path
) -> None:
    commit_blob(master, client, b"damaged", 12)
    assert master.ask(AskLostContents(10)).row_list == []
    checksum = content_of(b"damaged").checksum
    (folder / checksum.hex()[:2] / checksum.hex()).unlink()
    for partition in range(2):
        master.send(VerifyContents(partition))
    world.wait(lambda: bool(world.core.blobs.contents.lost), "the damage is not found")
    row = (1, p64(OID), p64(12), checksum, len(b"damaged"))
    assert [tuple(r) for r in master.ask(AskLostContents(10)).row_list] == [row]
    assert master.ask(AskLostContents(0)).row_list == []
