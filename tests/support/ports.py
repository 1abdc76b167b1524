"""Give each process of the tests ports that no other one takes.

A process owns a block of ports until it ends, by a lock on a file. So neither the workers of one test run
nor two runs on a machine choose the same port. The blocks lie below the ports that clusters choose for
themselves, and below those of outgoing connections.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from neo.simple import conf
from neo.simple.conf import is_free

FIRST_PORT, LAST_PORT = 10_000, conf.FIRST_PORT
#: The same for all processes. Not the place of temporary files, which tests and the search change.
LOCKS = Path("/tmp")
#: Far more than one test needs, and few enough for fifty processes.
BLOCK_PORTS = 200


class Ports:
    """The ports of a block, one after the other and then again from the first one. ``first``: of the
    block. Without it, take a block that no process has. ``folder``: where the locks are."""

    def __init__(
        self,
        first: int | None = None,
        is_free: Callable[[int], bool] = is_free,
        folder: Path | None = None,
    ) -> None:
        self._folder = folder or LOCKS
        self._is_free = is_free
        self.first = self._lock_a_block() if first is None else first
        self._next = 0

    def _lock_a_block(self) -> int:
        """Lock the first block that is free, for as long as a descriptor is open."""
        for first in range(FIRST_PORT, LAST_PORT, BLOCK_PORTS):
            path = self._folder / f"neo-test-ports-{os.getuid()}-{first}"
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return first
            except BlockingIOError:
                os.close(descriptor)
        raise AssertionError(
            f"other processes have all blocks of ports, {FIRST_PORT} to {LAST_PORT}: end some of them, "
            f"which hold locks on {self._folder}/neo-test-ports-*"
        )

    def free_range(self, count: int) -> int:
        """Return the first of ``count`` free ports in a row. All are given before one comes again."""
        last = BLOCK_PORTS - count
        for offset in (*range(self._next, last + 1), *range(min(self._next, last + 1))):
            found = range(self.first + offset, self.first + offset + count)
            if all(map(self._is_free, found)):
                self._next = offset + count
                return found[0]
        end = self.first + BLOCK_PORTS - 1
        raise AssertionError(f"no {count} ports in a row of {self.first} to {end} are free")


_own: Ports | None = None


def free_range(count: int) -> int:
    """Return the first of ``count`` free ports in a row, of the block of this process."""
    global _own
    if _own is None:
        _own = Ports()
    return _own.free_range(count)


def _forget() -> None:
    global _own
    _own = None


# A child has the descriptor of its parent's lock, and must take a block of its own.
os.register_at_fork(after_in_child=_forget)
