"""Oracle: no node and no client logs an internal error.

The product survives its own bugs: a handler that raises costs one connection and logs an error. In a
simulated world the first such log record ends the run. So does a peer that breaks the protocol, because
all peers run our code.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from neo.storage.backend.api import BackendFailure
from tests.simulator.world import Violation, World

#: What a node logs when it drops a peer for what that peer sent (neo.node.peer).
BROKE = "%r broke the protocol: %s"
#: Loggers that report expected errors.
SILENT = ("ZODB", "txn", "transaction")


class _Alarm(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, BackendFailure):
            return  # an injected disk failure: the workflow ends the node, as it must
        if isinstance(error, Exception):
            self._world.fail(error)
        elif str(record.msg).startswith(BROKE):
            self._world.fail(Violation(record.getMessage()))


@contextmanager
def alarmed(world: World) -> Iterator[None]:
    """Inside the block, fail the world with the first error that a node logs."""
    logger = logging.getLogger("neo")
    silent = [logging.getLogger(name) for name in SILENT]
    before = logger.level, logger.propagate, [other.level for other in silent]
    alarm = _Alarm(world)
    logger.addHandler(alarm)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    for other in silent:
        other.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.removeHandler(alarm)
        level, logger.propagate, levels = before
        logger.setLevel(level)
        for other, old in zip(silent, levels, strict=True):
            other.setLevel(old)
