"""The state in the log of the masters: the primary of each epoch, and the newest partition table.

A pure state machine: all masters apply the same transactions in the same order, and reach the same
state. A transaction that is obsolete when it is applied (a claim of an epoch that another master has, a
table of a former primary) changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from neo.operations.entries import decode as decode_entry
from neo.operations.namespace import Namespace
from neo.transactor.codec import pack, typed, unpack


class Claim(NamedTuple):
    """``master`` wants to be primary of ``epoch``, the one after the current. ``incarnation``: a random
    number of its process. After a restart it is not this primary any more."""

    epoch: int
    master: str
    incarnation: int


class Resign(NamedTuple):
    """The primary of ``epoch`` has stopped serving. ``served``: it had begun to. ``successor``: the only
    master that should claim at once; '' for any."""

    epoch: int
    incarnation: int
    served: bool
    successor: str


class Table(NamedTuple):
    """The primary of ``epoch`` is about to publish partition table ``ptid``, in which ``nodes`` have
    readable cells."""

    epoch: int
    incarnation: int
    ptid: int
    nodes: tuple[int, ...]


class Forget(NamedTuple):
    """The operator declares that table ``ptid``, the newest, is lost."""

    epoch: int
    incarnation: int
    ptid: int


class Operate(NamedTuple):
    """An entry about an operation (specification 27.1)."""

    epoch: int
    incarnation: int
    entry: bytes


Decision = Claim | Resign | Table | Forget | Operate
_KINDS: tuple[type[Decision], ...] = (Claim, Resign, Table, Forget, Operate)


def encode(decision: Decision) -> bytes:
    return pack((_KINDS.index(type(decision)), *decision))


def decode(data: bytes) -> Decision | None:
    """Return None for a transaction that a later version wrote: it must not stop an older one."""
    kind, *fields = unpack(data)
    return typed(_KINDS[kind], fields) if 0 <= kind < len(_KINDS) else None


class Epochs:
    """The state. ``epoch`` 0 is before the first claim."""

    def __init__(self) -> None:
        self.epoch = 0
        self.primary = ""
        self.incarnation = 0
        #: The primary of an earlier epoch may not know yet that it was replaced.
        self.doubt = False
        self.resigned = False
        #: The master to which the primary handed over; '' if there is none.
        self.successor = ""
        #: The greatest partition table that may have been published, and the nodes readable in it.
        self.ptid: int | None = None
        self.nodes: frozenset[int] = frozenset()
        #: The greatest table id that was ever published. Unlike ``ptid`` it does not decrease when the
        #: operator gives up a table, because a node that has that table may come back.
        self.greatest = 0
        self.operations = Namespace(durable=True)
        #: Whether the last entry about an operation changed anything.
        self.operated = False

    def apply(self, data: bytes) -> Decision | None:
        """Apply a transaction of the log. Return it if it changed the state."""
        decision = decode(data)
        if isinstance(decision, Claim):
            if decision.epoch != self.epoch + 1:
                return None
            # If the primary's own master claims again, its former process, which had locked the log, is
            # dead.
            if self.epoch and not self.resigned and decision.master != self.primary:
                self.doubt = True
            self.epoch, self.primary, self.incarnation = decision
            self.resigned = False
            self.successor = ""
            return decision
        if decision is None or (decision.epoch, decision.incarnation) != (self.epoch, self.incarnation):
            return None
        if isinstance(decision, Resign):
            self.resigned = True
            self.successor = decision.successor
            # A primary that served had waited for all earlier primaries.
            self.doubt = self.doubt and not decision.served
        elif isinstance(decision, Table):
            if self.ptid is not None and decision.ptid <= self.ptid:
                return None
            self.ptid = decision.ptid
            self.greatest = max(self.greatest, decision.ptid)
            self.nodes = frozenset(decision.nodes)
            self.doubt = False
        elif isinstance(decision, Operate):
            self._operate(decision.entry)
        else:
            if decision.ptid != self.ptid:
                return None
            self.ptid = None
            self.nodes = frozenset()
        return decision

    def _operate(self, data: bytes) -> None:
        try:
            entry = decode_entry(data)
        except ValueError:  # a later version wrote it
            self.operated = False
        else:
            self.operated = self.operations.apply(entry)
