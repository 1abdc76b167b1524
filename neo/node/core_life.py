"""The core of a node: made and started, and made again after a pause when it has failed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from neo.node.config import ConfigError
from neo.node.core import Core
from neo.node.host import Timer

logger = logging.getLogger("neo.node")

#: Pauses between attempts to start a core again; the last one repeats.
RESTART_SECONDS = (1, 2, 5, 10, 30)


class StartFailure(Exception):
    """A core cannot be made now. The message says why and what to do.

    ``patience``: seconds since the start of the process in which making the first core is tried again.
    """

    def __init__(self, message: str, patience: float = 0.0) -> None:
        super().__init__(message)
        self.patience = patience


class Owner(Protocol):
    """The host of the node."""

    @property
    def over(self) -> bool:
        """The node shall not start again."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer: ...

    def stop(self, code: int) -> None: ...


class CoreLife:
    """All methods are called on the thread of the event loop. ``name``: of the node, for its log."""

    def __init__(self, owner: Owner, make: Callable[[], Core], name: str) -> None:
        self.core: Core | None = None
        #: Why there is no core, told to peers that connect meanwhile.
        self.waits = "not started yet"
        self._owner = owner
        self._make = make
        self._name = name
        self._failures = 0

    def start(self) -> None:
        """Make a core and start it. Raise StartFailure, ConfigError."""
        core = self.core = self._make()
        core.start()
        core.flush()

    def end(self, why: str) -> Core | None:
        """Return the core, which is the node's no more, for the reason ``why``."""
        core, self.core, self.waits = self.core, None, why
        return core

    def restart(self, why: str) -> None:
        """Make another core after a pause, because of ``why``."""
        self.end(why)
        delay = RESTART_SECONDS[min(self._failures, len(RESTART_SECONDS) - 1)]
        self._failures += 1
        logger.warning("%s starts again in %s s", self._name, delay)
        self._owner.call_later(delay, self._start_again)

    def healthy(self) -> None:
        """Reset the pauses between restarts."""
        self._failures = 0

    def call(self, callback: Callable[..., None], args: tuple[object, ...]) -> None:
        """Run an event of the core that came from another thread."""
        callback(*args)
        core = self.core
        if core is not None and core.touched:
            core.flush()

    def _start_again(self) -> None:
        if self._owner.over:
            return
        try:
            self.start()
        except (ConfigError, StartFailure) as e:
            logger.error("%s", e)
            self.restart(str(e))
        except Exception as e:
            # Otherwise the node would continue without a core.
            logger.critical("unexpected error: %s cannot start again: %s", self._name, e, exc_info=e)
            self._owner.stop(1)
