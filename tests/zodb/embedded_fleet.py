"""Empty embedded databases in quick succession, in the place of clusters."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import neo.embedded
from neo.client import NEOStorage
from neo.simple.conf import Shape, create
from tests.zodb.fleet import Fleet


class EmbeddedFleet(Fleet):
    """Folders, each of which is opened by all storages of a test."""

    def __enter__(self) -> EmbeddedFleet:
        self._folders = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._number = 0
        self._opened: list[NEOStorage] = []
        return self

    @property
    def path(self) -> Path:
        return self._folders / str(self._number)

    def start(self) -> None:
        """Leave the folder of the last test, which must have closed its storages, for an empty one."""
        self.stop()
        shutil.rmtree(self.path, ignore_errors=True)
        self._number += 1
        self.path.mkdir()
        conf = create(
            self.path / "neo.conf", Shape(storages=self._storages, replicas=self._replicas)
        )
        self.masters = conf.masters
        self.databases = [str(self.path / f"{node.name}.sqlite") for node in conf.of_role("storage")]

    def stop(self) -> None:
        while self._opened:
            self._opened.pop().close()

    def storage(self, **options: Any) -> NEOStorage:
        storage = neo.embedded.open(self.path, **options)
        self._opened.append(storage)
        return storage

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._stack.close()
