"""The pauses before a process makes another core."""

from __future__ import annotations

from unittest.mock import Mock

from neo.node.process import ProcessHost


def test_a_process_tries_again_more_and_more_slowly() -> None:
    """Specification 22.4."""
    host = Mock(_failures=0)
    for _ in range(6):
        ProcessHost.restart(host, "the disk is away")
    delays = [call.args[0] for call in host._loop.call_later.call_args_list]
    assert delays == [1, 2, 5, 10, 30, 30]
    ProcessHost.healthy(host)
    ProcessHost.restart(host, "the disk is away")
    assert host._loop.call_later.call_args.args[0] == 1
