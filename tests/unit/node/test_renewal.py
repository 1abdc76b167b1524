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
from neo.node.core_life import CoreLife
from neo.node.node_host import NodeHost
from neo.node.process import NodePlan, Process, words_again


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["-m", "neo.storage", "-f", "neo.conf", "-s", "storage1"], None),
        (
            ["-m", "neo.storage", "-f", "neo.conf", "--reset"],
            ["-m", "neo.storage", "-f", "neo.conf"],
        ),
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

    def stop(self, code: int) -> None: ...


def end(*acts: Callable[[NodeHost, Process], None]) -> tuple[int, bool]:
    """Return the exit code of a process, and whether it begins anew."""

    def make(host: NodeHost) -> Core:
        def act() -> None:
            for each in acts:
                each(host, process)

        return cast(Core, Ends(act))

    settings = argparse.Namespace(bind=None, ca=None, http=None, log_slow=None)
    process = Process([NodePlan("", "storage", settings, make)])
    return asyncio.run(process.run()), process.renews


def renew(host: NodeHost, process: Process) -> None:
    host.renew()


def test_a_process_begins_anew_when_its_node_wishes() -> None:
    """Not if it fails, or is ended by a signal."""
    assert end(renew) == (0, True)
    assert end(lambda host, _: host.stop(1), renew) == (1, False)
    assert end(renew, lambda _, process: process.signal(signal.SIGTERM)) == (0, False)


def test_a_process_tries_again_more_and_more_slowly() -> None:
    """Specification 22.4."""
    owner = Mock()
    life = CoreLife(owner, Mock(), "this node")
    for _ in range(6):
        life.restart("the disk is away")
    later = owner.call_later
    assert [call.args[0] for call in later.call_args_list] == [1, 2, 5, 10, 30, 30]
    life.healthy()
    life.restart("the disk is away")
    assert later.call_args.args[0] == 1 and life.waits == "the disk is away"
