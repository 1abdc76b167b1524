"""Bound the time in which a peer answers, such as a node that was dialed and is asked to identify."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Cancelled
from neo.protocol.errors import ErrorAnswer


@contextmanager
def answering(
    core: Core, peer: Peer, seconds: float, silent: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Lose the peer if the block has not ended after ``seconds``; what waits for an answer there fails
    with ConnectionLost. ``silent`` is called before that.

    Close the connection if the peer refuses what it is asked in the block, and if the workflow is
    cancelled: the answer may be under way, and no handler expects it.
    """

    def give_up() -> None:
        silent()
        peer.lost("it does not answer")

    timer = core.call_later(seconds, give_up)
    try:
        yield
    except (ErrorAnswer, Cancelled):
        peer.close()
        raise
    finally:
        timer.cancel()
