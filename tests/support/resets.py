"""Connections that are reset before a process accepts them, as by health checks and scanners."""

from __future__ import annotations

import os
import signal
import socket
import struct

from tests.support.patience import PATIENCE_SECONDS
from tests.support.standstill import stand_still

#: Number of connections that wait to be accepted at the same time.
CONNECTIONS = 5


def reset(sock: socket.socket) -> None:
    """Close a socket with a reset instead of a normal end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def reset_unseen(pid: int, address: tuple[str, int]) -> None:
    """Stop the process that listens at ``address``, connect and reset, then continue the process."""
    stand_still(pid)
    try:
        for _ in range(CONNECTIONS):
            reset(socket.create_connection(address, PATIENCE_SECONDS))
    finally:
        os.kill(pid, signal.SIGCONT)
