"""What the log of the masters says: who is primary of which epoch, which partition table is the newest.

A pure state machine: every master applies the same transactions in the same order, and is in the same
state after each. What makes no sense any more when its turn comes (a claim of an epoch that another one
has, a table of a primary that was replaced) changes nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgpack


class Claim(NamedTuple):
    """``master`` wants to be primary of ``epoch``, the one after the present. ``life`` is a random number
    of its process: after a restart it is not this primary any more."""

    epoch: int
    master: str
    life: int


class Resign(NamedTuple):
    """The primary of ``epoch`` does not serve any more. ``served``: it did. ``successor`` alone shall
    claim at once, '' for any."""

    epoch: int
    life: int
    served: bool
    successor: str


class Table(NamedTuple):
    """The primary of ``epoch`` is about to tell others of partition table ``ptid``, in which these
    storage nodes are readable."""

    epoch: int
    life: int
    ptid: int
    nodes: tuple[int, ...]


class Forget(NamedTuple):
    """The operator says that table ``ptid``, the newest, is lost for ever."""

    epoch: int
    life: int
    ptid: int


Decision = Claim | Resign | Table | Forget
_KINDS: tuple[type[Decision], ...] = (Claim, Resign, Table, Forget)


def encode(decision: Decision) -> bytes:
    packed: bytes = msgpack.packb((_KINDS.index(type(decision)), *decision))
    return packed


def decode(data: bytes) -> Decision | None:
    """None for what a later version may have written: it must not stop an older one."""
    kind, *fields = msgpack.unpackb(data)
    if not 0 <= kind < len(_KINDS):
        return None
    cls: Any = _KINDS[kind]
    return cls(*(tuple(f) if isinstance(f, list) else f for f in fields))  # type: ignore[no-any-return]


class Epochs:
    """``epoch`` 0 is before the first claim."""

    def __init__(self) -> None:
        self.epoch = 0
        self.primary = ""
        self.life = 0
        #: The primary of an earlier epoch may not know yet that it is over.
        self.doubt = False
        self.resigned = False
        #: Who shall be the next, if the primary resigned in favour of somebody.
        self.successor = ""
        #: The greatest partition table that others may have been told of, and who was readable in it.
        self.ptid: int | None = None
        self.nodes: frozenset[int] = frozenset()
        #: The same, even if it was given up: who has it may come back.
        self.greatest = 0

    def apply(self, data: bytes) -> Decision | None:
        """A transaction of the log; returns it if it changed something."""
        decision = decode(data)
        if isinstance(decision, Claim):
            if decision.epoch != self.epoch + 1:
                return None
            # The same master again: its process of before is dead, as it holds the lock of the log.
            if self.epoch and not self.resigned and decision.master != self.primary:
                self.doubt = True
            self.epoch, self.primary, self.life = decision
            self.resigned = False
            self.successor = ""
            return decision
        if decision is None or (decision.epoch, decision.life) != (self.epoch, self.life):
            return None
        if isinstance(decision, Resign):
            self.resigned = True
            self.successor = decision.successor
            # Who served had waited for all primaries before.
            self.doubt = self.doubt and not decision.served
        elif isinstance(decision, Table):
            if self.ptid is not None and decision.ptid <= self.ptid:
                return None
            self.ptid = decision.ptid
            self.greatest = max(self.greatest, decision.ptid)
            self.nodes = frozenset(decision.nodes)
            self.doubt = False
        else:
            if decision.ptid != self.ptid:
                return None
            self.ptid = None
            self.nodes = frozenset()
        return decision
