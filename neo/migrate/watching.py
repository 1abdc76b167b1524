"""Collect logs and warnings of storages, after which a copy may lack data."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Bound of the kept lines, because damage may be logged once per record.
KEPT = 20
#: The logger of ZODB's storages.
LOGGER = "ZODB"
#: Warnings about intact databases: their clock was ahead of the local clock.
_HARMLESS = ("%s Database records %d seconds in the future",)
#: The old layout of a folder of blobs is read and written as any other.
_OLD_LAYOUT = "blob directory layout is deprecated"
#: Warnings about code, not about data.
_ABOUT_CODE = (
    *(DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning),
    ResourceWarning,
)


class Warned(logging.Handler):
    """The first warnings. ``count``: the number of those after which data may be missing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.total = self.count = 0
        self._counts = True

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if _OLD_LAYOUT not in message:
            self.add(message, record.msg not in _HARMLESS)

    def add(self, line: str, counts: bool = True) -> None:
        self.total += 1
        self.count += counts and self._counts
        if len(self.lines) < KEPT:
            self.lines.append(line)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Do not count warnings during the block."""
        self._counts = False
        try:
            yield
        finally:
            self._counts = True


@contextmanager
def watched() -> Iterator[Warned]:
    """Collect logs of ZODB's storages, and Python warnings, during the block."""
    warned = Warned()
    logger = logging.getLogger(LOGGER)
    logger.addHandler(warned)
    try:
        with warnings.catch_warnings():
            show = warnings.showwarning

            def shown(
                message: Warning | str, category: type[Warning], *where: Any, **options: Any
            ) -> None:
                if issubclass(category, _ABOUT_CODE):
                    show(message, category, *where, **options)
                else:
                    warned.add(f"{category.__name__}: {message}")

            warnings.showwarning = shown
            yield warned
    finally:
        logger.removeHandler(warned)
