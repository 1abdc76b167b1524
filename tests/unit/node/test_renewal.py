"""A process that begins anew (specification 27.81), and its pauses before it makes another core."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Callable
from typing import cast
from unittest.mock import Mock

import pytest

from neo.node.core import Core
from neo.node.process import ProcessHost, words_again


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["-m", "neo.storage", "-f", "neo.conf", "-s", "storage1"], None),
        (["-m", "neo.storage", "-f", "neo.conf", "--reset"], ["-m", "neo.storage", "-f", "neo.conf"]),
        (["neostorage", "--res", "--new-nid", "--new"], ["neostorage"]),
        (["neostorage", "-", "--", "--resets", "reset"], None),
    ],
)
def test_options_for_one_start_are_not_given_again(
    words: list[str], again: list[str] | None
) -> None:
    assert words_again(words) == (words if again is None else again)


class Ends:
    """A core that does something as soon as it starts."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.start = act

    def flush(self) -> None: ...

    def terminate(self) -> None: ...


def end(*acts: Callable[[ProcessHost], None]) -> tuple[int, bool]:
    """Return the exit code of a process, and whether it begins anew."""

    def make(host: ProcessHost) -> Core:
        def act() -> None:
            for each in acts:
                each(host)

        return cast(Core, Ends(act))

    settings = argparse.Namespace(bind=None, ca=None)
    host = ProcessHost(settings, make)
    return asyncio.run(host.run()), host.renews


def test_a_process_begins_anew_when_its_node_wishes() -> None:
    """Not if it fails, or is ended by a signal."""
    assert end(ProcessHost.renew) == (0, True)
    assert end(lambda host: host.stop(1), ProcessHost.renew) == (1, False)
    assert end(ProcessHost.renew, lambda host: host._signal(signal.SIGTERM)) == (0, False)


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
