"""Tell systemd how the process is: ready, alive, stopping (sd_notify(3)).

Without systemd nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

logger = logging.getLogger("neo.node")

#: Signs of life in a period of the watchdog: one may come late.
BEATS = 3


class Supervisor:
    """The service manager that started this process, by the variables that it set."""

    def __init__(self, environ: Mapping[str, str] = os.environ, pid: int | None = None) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        watched = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid() if pid is None else pid))
        #: Pause between signs of life, in seconds; 0 if nobody waits for them.
        self.pause = int(environ.get("WATCHDOG_USEC", "0")) / 1e6 / BEATS if watched else 0.0

    def ready(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say that all nodes of the process listen. From now on the loop says that it goes round."""
        self.tell("READY=1")
        if self._address and self.pause:
            self._beat(loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self.tell("WATCHDOG=1")
        loop.call_later(self.pause, self._beat, loop)

    def tell(self, state: str) -> None:
        """Send a line to the service manager, if there is one."""
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
                sock.sendto(state.encode(), address)
        except OSError as e:
            logger.warning("systemd cannot be told %s: %s", state, e)
