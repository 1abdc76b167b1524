"""Work in the background gives way to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neo.storage.core import StorageCore

#: More than this is no pause but a delay.
PAUSE_SECONDS_MAX = 0.2


async def give_way(core: StorageCore, began: float) -> None:
    """After a piece of work: while transactions are in progress here, pause as long as it took, so
    that it gets half of the node at most. ``began``: in seconds of ``monotonic``."""
    if core.locks:
        await core.sleep(min(core.shell.monotonic() - began, PAUSE_SECONDS_MAX))
    else:
        await core.sleep(0)
