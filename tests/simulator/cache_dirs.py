"""A folder of kept caches for simulated clients (``cache_dir``): real files.

A killed process loses its lock on a slot, as the kernel would take it away.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from neo.client.warm import keeper
from neo.client.warm.slots import Slot, take_slot
from tests.simulator.clients import ClientProcess
from tests.simulator.planting import plant

#: Part of the seeds whose clients keep their caches.
KEPT_CHANCE = 0.3
#: Times between two saves: usually some in each life of a process.
SAVE_SECONDS = (0.05, 0.5, 5.0)
#: Records after which other threads run while a cache is saved.
PAUSE_EACH = (1, 3, 1000)


class CacheDirs:
    """The folder of a run's clients. ``wanted``: None if the seed decides."""

    def __init__(self, seed: int, wanted: bool | None) -> None:
        self._random = random = Random(f"cache dirs {seed}")
        by_chance = random.random() < KEPT_CHANCE
        self._wanted = by_chance if wanted is None else wanted
        self._root: Path | None = None
        self._taken: list[tuple[ClientProcess, Slot]] = []

    def settings(self, cache_size: int) -> dict[str, str]:
        """Return the options of a new storage."""
        if not self._wanted or not cache_size:
            return {}
        if self._root is None:
            memory = Path("/dev/shm")
            place = memory if memory.is_dir() else None
            self._root = Path(tempfile.mkdtemp(prefix="neo-sim-caches-", dir=place))
        return {"cache_dir": str(self._root)}

    def take(self, process: ClientProcess, folder: str, cluster: str) -> Slot | None:
        """Take a slot for a process, after those of killed processes became free."""
        for owner, slot in self._taken:
            if owner.dead:
                slot.release()
        self._taken = [(owner, slot) for owner, slot in self._taken if not owner.dead]
        taken = take_slot(folder, cluster)
        if taken is not None:
            self._taken.append((process, taken))
        return taken

    @contextmanager
    def world(self, current: Callable[[], ClientProcess]) -> Iterator[None]:
        """Inside the block, slots belong to simulated processes. ``current``: the one that runs."""

        def take(folder: str, cluster: str) -> Slot | None:
            return self.take(current(), folder, cluster)

        seconds = self._random.choice(SAVE_SECONDS)
        with plant(
            [
                (keeper, "take_slot", take),
                (keeper, "SAVE_SECONDS", seconds),
                (keeper, "PAUSE_EACH", self._random.choice(PAUSE_EACH)),
            ]
        ):
            yield

    def close(self) -> None:
        for _, slot in self._taken:
            slot.release()
        self._taken.clear()
        if self._root is not None:
            shutil.rmtree(self._root)
            self._root = None
