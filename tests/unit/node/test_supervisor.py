"""What systemd is told by a process of nodes: sd_notify(3)."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from neo.node.supervisor import BEATS, Supervisor
from tests.support.patience import PATIENCE_SECONDS


@pytest.fixture(params=["", "@"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A socket of a service manager, as a file or as an abstract name."""
    name = f"{request.param}{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(PATIENCE_SECONDS)
        sock.bind(name.replace("@", "\0", 1))
        yield name, sock


def test_manager_is_told_of_readiness_and_of_life(manager: tuple[str, socket.socket]) -> None:
    name, sock = manager
    environ = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000", "WATCHDOG_PID": "7"}
    supervisor = Supervisor(environ, pid=7)
    assert supervisor.pause == pytest.approx(0.03 / BEATS)

    async def serve() -> list[bytes]:
        loop = asyncio.get_running_loop()
        supervisor.ready(loop)
        return [await loop.run_in_executor(None, sock.recv, 100) for _ in range(4)]

    assert asyncio.run(serve()) == [b"READY=1", *[b"WATCHDOG=1"] * 3]


def test_watchdog_of_another_process_is_left_alone(manager: tuple[str, socket.socket]) -> None:
    environ = {"NOTIFY_SOCKET": manager[0], "WATCHDOG_USEC": "30000", "WATCHDOG_PID": "8"}
    assert Supervisor(environ, pid=7).pause == 0


def test_nobody_is_told_without_systemd_and_a_lost_one_is_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.WARNING):
        Supervisor({}).tell("READY=1")
        assert caplog.text == ""
        Supervisor({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell("READY=1")
        assert "systemd cannot be told READY=1" in caplog.text
