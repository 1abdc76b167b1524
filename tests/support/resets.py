"""Connections that are reset before a process could look at them, as health checks and scanners do."""

from __future__ import annotations

import os
import signal
import socket
import struct
from pathlib import Path

from tests.support.raw import wait_for

#: All of them wait to be accepted at once.
CONNECTIONS = 5


def reset(sock: socket.socket) -> None:
    """Close it; the other side hears of a reset, not of an end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def reset_unseen(pid: int, address: tuple[str, int]) -> None:
    """Stop the process that listens there, connect and reset, let it go on."""
    os.kill(pid, signal.SIGSTOP)
    try:
        stopped = Path(f"/proc/{pid}/stat")
        wait_for(lambda: stopped.read_text().rpartition(")")[2].split()[0] == "T", "it stops")
        for _ in range(CONNECTIONS):
            reset(socket.create_connection(address, 20))
    finally:
        os.kill(pid, signal.SIGCONT)
