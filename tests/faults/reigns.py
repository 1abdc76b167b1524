"""Check which master was the primary, and when: never two at the same time.

There are three sources:

* Observers send requests to each master all the time, as clients and admin nodes do
  (:class:`Observer`).
* The masters' logs have the epochs (:func:`epochs_of`).
* The storage nodes' logs say which primaries they joined and heard (:func:`check_heard`), and their
  databases in which commits they took part (:func:`check_commits`). A node that is cut off may regard
  its old primary as the primary for a while, but must not get any message from it any more, let alone a
  commit.

All processes run on one machine, with one clock.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import combinations
from typing import Any, NamedTuple

from neo.protocol.enums import NodeType
from neo.protocol.packets import (
    AcceptIdentification,
    Address,
    AskLastTransaction,
    Ping,
    Request,
    RequestIdentification,
)
from tests.support.raw import RawPeer

#: Interval between two requests of an observer.
LOOK_SECONDS = 0.02
#: On a busy machine a node may log a message so much later. If a lease is too long by less than this,
#: observers and commits still find that, because the tolerance does not apply to them.
LATE_SECONDS = 0.5


# -- as clients and admin nodes see it -------------------------------------------------------------


class Reign(NamedTuple):
    """A master served at least from ``begin`` to ``end``, in seconds of the monotonic clock. It served
    one connection all the time, and a primary closes all connections when it ends."""

    begin: float
    end: float
    master: str


class Observer(threading.Thread):
    """Sends requests to a master again and again, as a client or an admin node does. A master that
    serves is the primary. ``address``: that of the master. ``own``: the address of an admin node."""

    def __init__(
        self, name: str, address: Address, cluster: str, own: Address | None, stop: threading.Event
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.reigns: list[Reign] = []
        self.node_type = NodeType.CLIENT if own is None else NodeType.ADMIN
        self._question: Request[Any] = AskLastTransaction() if own is None else Ping()
        self._address = address
        self._request = RequestIdentification(self.node_type, None, own, cluster, None, {})
        self._stop_asked = stop

    def run(self) -> None:
        while not self._stop_asked.wait(LOOK_SECONDS):
            try:
                with RawPeer(self._address) as peer:
                    peer.greet()
                    if type(peer.ask(self._request)) is AcceptIdentification:
                        self._watch(peer)
            except (OSError, EOFError):
                continue  # the master does not serve, or does not serve any more

    def _watch(self, peer: RawPeer) -> None:
        begin = end = time.monotonic()
        try:
            while not self._stop_asked.wait(LOOK_SECONDS):
                asked = time.monotonic()
                peer.ask(self._question)
                end = asked
        finally:
            self.reigns.append(Reign(begin, end, self.name))


def check_alone(reigns: Iterable[Reign]) -> None:
    """Raise AssertionError if two masters served at the same time."""
    for one, other in combinations(sorted(reigns), 2):
        assert one.end < other.begin or one.master == other.master, f"{one} and {other}"


# -- as masters tell it ----------------------------------------------------------------------------


class Epoch(NamedTuple):
    """An epoch. ``begin``: when its primary first began to serve, in seconds since 1970."""

    number: int
    begin: float
    master: str


_LINE = re.compile(r"^(\d\S+ \S+) +\S+ +\S+ +(.*)$", re.M)
_PRIMARY = re.compile(r"this master is the primary, (M\d+), in epoch (\d+)")


def _lines(log: str) -> Iterator[tuple[float, str]]:
    for when, text in _LINE.findall(log):
        yield datetime.fromisoformat(when).timestamp(), text


def epochs_of(logs: Iterable[str]) -> list[Epoch]:
    """Return the epochs in their order, from the ``logs`` of all masters. Raise AssertionError if an
    epoch had two primaries, or began before an earlier epoch."""
    begun = sorted(
        (when, int(found[2]), found[1])
        for log in logs
        for when, text in _lines(log)
        if (found := _PRIMARY.match(text))
    )
    epochs: list[Epoch] = []
    for when, number, master in begun:
        last = epochs[-1] if epochs else Epoch(0, 0.0, "")
        if number != last.number:
            assert number > last.number, f"epoch {number} of {master} began again, after {last}"
            epochs.append(Epoch(number, when, master))
        else:
            assert master == last.master, f"epoch {number} of {master}, and {last}"
    return epochs


# -- as storage nodes tell it ----------------------------------------------------------------------

_JOINED = re.compile(r"S\d+ joined the primary master (M\d+) ")
_TOLD = re.compile(r"cluster state: ")


class Heard(NamedTuple):
    """A storage node got a message of the primary of ``epoch``."""

    when: float
    what: str
    epoch: Epoch


def heard(epochs: Sequence[Epoch], log: str) -> list[Heard]:
    """Return what a storage node heard of which primary. Raise AssertionError if one never began."""
    found: list[Heard] = []
    epoch: Epoch | None = None
    for when, text in _lines(log):
        if joined := _JOINED.match(text):
            its = [e for e in epochs if e.master == joined[1] and e.begin <= when]
            assert its, f"{text}: it had not begun"
            epoch = its[-1]
        if epoch is not None and (joined or _TOLD.match(text)):
            found.append(Heard(when, text, epoch))
    return found


def _next(epochs: Sequence[Epoch], epoch: Epoch) -> Epoch | None:
    return next((later for later in epochs if later.number > epoch.number), None)


def check_heard(epochs: Sequence[Epoch], logs: Mapping[str, str]) -> int:
    """Raise AssertionError if a storage node heard of a primary after the next one began. Return the
    number of messages. ``logs``: by the name of the node."""
    count = 0
    for name, log in logs.items():
        for one in heard(epochs, log):
            later = _next(epochs, one.epoch)
            if later is not None:
                assert one.when - LATE_SECONDS < later.begin, f"{name}: {one}, after {later}"
            count += 1
    return count


def check_commits(epochs: Sequence[Epoch], log: str, newest: float) -> None:
    """Raise AssertionError if a storage node took part in a commit of a primary after the next one
    began.

    ``newest``: the time of the last commit in its database, which was read before its ``log``.
    """
    *_, last = heard(epochs, log)
    later = _next(epochs, last.epoch)
    assert later is None or newest < later.begin, f"a commit at {newest}, {last}, after {later}"
