"""A process that begins anew (specification 27.81)."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Callable
from typing import cast

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
    assert end(ProcessHost.renew) == (0, True)


def test_a_process_that_fails_does_not_begin_anew() -> None:
    assert end(lambda host: host.stop(1), ProcessHost.renew) == (1, False)


def test_a_signal_ends_a_process_that_was_to_begin_anew() -> None:
    assert end(ProcessHost.renew, lambda host: host._signal(signal.SIGTERM)) == (0, False)
