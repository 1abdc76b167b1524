"""Ports that nobody takes by chance between the choice and the use."""

from __future__ import annotations

import random
import socket

from neo.simple.conf import FIRST_PORT, LAST_PORT

TRIES = 1000


def free_range(count: int) -> int:
    """The first of so many ports in a row that are free, below those of outgoing connections. Not by the
    global generator: each process of a test run has it seeded with the same number."""
    choices = random.SystemRandom()
    for _ in range(TRIES):
        first = choices.randrange(FIRST_PORT, LAST_PORT - count)
        if all(map(_is_free, range(first, first + count))):
            return first
    raise AssertionError(f"no {count} ports in a row are free")


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
