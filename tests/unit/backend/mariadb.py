"""What happens to the connections of a backend with its server."""

from __future__ import annotations

from typing import Any

from tests.support.mariadb import Server


def kill_writer(backend: Any, server: Server) -> None:
    backend.engine.drain()  # its thread is idle: the connection is free for this question
    writer_id = backend.engine._write_link.execute("SELECT CONNECTION_ID()")[0][0]
    server.query(f"KILL {writer_id}")
