"""How a site is lost, and what its backup says then, for :mod:`tests.faults.sync_sites`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from tests.faults.link import Link
from tests.faults.operator import neoctl
from tests.faults.sync_site import Site
from tests.support.patience import wait_until

#: A backup whose upstream is lost is in sync for as long as its last lease (specification 25.14). The
#: packet that granted it may have been on its way; clocks of the machine and of its processes are one.
LEASE_SECONDS = 2.0 + 0.5

Strike = Callable[[Site, Link], AbstractContextManager[None]]


class Loss(NamedTuple):
    """``strike``: entered, the site is lost; left, it is there again if it lives."""

    what: str
    lives: bool
    strike: Strike


@contextmanager
def _killed(site: Site, link: Link) -> Iterator[None]:
    site.destroy()
    yield


@contextmanager
def _standing(site: Site, link: Link) -> Iterator[None]:
    site.signal_all(signal.SIGSTOP)
    try:
        yield
    finally:
        site.signal_all(signal.SIGCONT)


@contextmanager
def _cut(site: Site, link: Link) -> Iterator[None]:
    """Cut the link to the backup. Clients and operators reach both sites."""
    with link.cut():
        yield


@contextmanager
def _alone(site: Site, link: Link) -> Iterator[None]:
    """Cut the site off from all: its backup, clients and operators."""
    with link.cut():
        site.machine.unplug()
        try:
            yield
        finally:
            site.machine.plug()


LOSSES = (
    Loss("all processes are killed", False, _killed),
    Loss("all processes stand still", True, _standing),
    Loss("it is cut off from its backup", True, _cut),
    Loss("it is cut off from all", True, _alone),
)


class Evidence(NamedTuple):
    """What a backup says. ``until``: time of the monotonic clock until which it was in sync. ``tid``: up
    to which it is complete."""

    until: float
    tid: bytes


def evidence(site: Site) -> Evidence:
    """Return what ``neoctl print backups`` shows, as an operator reads it before a take-over."""
    offset = time.time() - time.monotonic()

    def own() -> dict[str, Any] | None:
        found: dict[str, Any] | None = neoctl(site.admin_address, "print", "backups")["own"]
        return found

    row = wait_until(own, f"{site.name} does not say how it follows", excuses=(AssertionError,))
    assert row["until"] is not None and row["tid"] is not None, f"{site.name} was never in sync: {row}"
    return Evidence(row["until"] - offset, bytes.fromhex(row["tid"].removeprefix("0x")))
