"""The commands of the two ports by name, and where files of commands are written."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from neo.transactor.daemon import Daemon
from neo.transactor.session import HELP, SERVICE


def test_each_port_has_its_commands() -> None:
    """``pong`` only answers ``ping`` (specification 20.39, 20.48)."""
    service = "subscribe post repost gettid getstatus gettspec authenticate quit exit help"
    admin = (
        "terminate start stop reset_node info dump debugdump debugfile debugmask debug speedtest"
    )
    members = "peers add_peer remove_peer move_peer"
    assert SERVICE - {"pong"} == set(service.split())
    assert set(HELP) - {"pong"} == set(f"{service} {admin} {members}".split())


@pytest.mark.parametrize("command", [Daemon.write_dump, Daemon.debug_file])
def test_no_file_is_written_through_a_link(tmp_path: Path, command: Mock) -> None:
    """Specification 20.52."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    folder = tmp_path / "debug"
    folder.mkdir()
    (folder / "name").symlink_to(precious)
    daemon = Mock()
    daemon.config.debug_folder = str(folder)
    daemon._in_debug_folder = lambda name: Daemon._in_debug_folder(daemon, name)
    with pytest.raises(OSError, match="is a link"):
        command(daemon, "name")
    assert precious.read_text() == "precious" and not daemon.mock_calls
