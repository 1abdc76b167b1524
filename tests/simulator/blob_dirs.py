"""Folders of blobs of simulated clients: real files, with names that the seed decides.

A folder is a cache: processes share it, and find what an earlier process left in it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from uuid import uuid4

from neo.protocol import blobs
from tests.simulator.knobs import Knob
from tests.simulator.planting import plant

#: Part of the runs whose client processes share one folder, and part of those without a folder that
#: outlives the processes.
SHARED_CHANCE = 0.4
FRESH_CHANCE = 0.3
#: Sizes of pieces, in which contents of a few kilobytes have several of them.
PIECES_BYTES = (20, 300, 3000, blobs.PIECE_BYTES)
#: Stands for the place of the folders in the story, which must not depend on the real world.
HIDDEN = "blob-dirs"


class BlobDirs:
    """The folders of a run's clients."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(f"blob dirs {seed}")
        self._shared = random.random() < SHARED_CHANCE
        self._fresh = random.random() < FRESH_CHANCE
        self._root: Path | None = None
        self._made = count()

    @property
    def root(self) -> Path:
        if self._root is None:
            memory = Path("/dev/shm")
            place = memory if memory.is_dir() else None
            # No other run, of this process or another one, ever has the same place.
            prefix = f"neo-sim-blobs-{uuid4().hex}-"
            self._root = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        return self._root

    def choose(self, place: int) -> str:
        """Return the folder of a new client process. ``place``: its number among those that run at the
        same time."""
        name = "all" if self._shared else f"place{place}"
        if self._fresh and not self._shared:
            name = f"process{next(self._made)}"
        path = self.root / name
        path.mkdir(exist_ok=True)
        return str(path)

    def new_file(self, data: bytes) -> str:
        """Return the path of a new file with this content, which a storage may take away."""
        path = self.root / f"new{next(self._made)}"
        path.write_bytes(data)
        return str(path)

    def hide(self, text: str) -> str:
        """Replace the place of the folders in a text for the story."""
        return text if self._root is None else text.replace(str(self._root), HIDDEN)

    def close(self) -> None:
        if self._root is not None:
            shutil.rmtree(self._root)
            self._root = None

    @contextmanager
    def world(self, wanted: bool) -> Iterator[None]:
        """Inside the block, pieces have a size that the seed chooses, and temporary files have names
        that only depend on their order."""
        if not wanted:
            yield
            return
        size = self._random.choice(PIECES_BYTES)
        knob = Knob("PIECE_BYTES", "neo", (size,))
        names = (f"{number:08}" for number in count())
        with plant(
            [
                *((module, knob.name, size) for module in knob.modules()),
                (tempfile, "_name_sequence", names),
            ]
        ):
            yield
