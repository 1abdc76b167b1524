"""The change of one object by a transaction, and the context of requests about it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from neo.net.channel import Channel


class Kind(Enum):
    STORE = "data, whose conflicts may be resolved"
    MERGED = "data that merges an undo: kept, other undos may follow in the transaction"
    CHECK = "checkCurrentSerialInTransaction"
    NOTHING = "deletion, or undo of a creation"
    COPY = "undo: the data of an earlier revision"
    RESTORE = "whatever the current revision is"


class Change:
    """The change of one object by a transaction. A later store of the object replaces it.

    ``locked``: nodes that granted the write lock. Objects share these sets, since there may be millions.
    """

    __slots__ = ("base", "data", "data_serial", "kind", "locked", "unanswered")

    def __init__(
        self, kind: Kind, base: bytes, data: bytes | None, data_serial: bytes | None
    ) -> None:
        self.kind = kind
        self.base = base
        self.data = data
        self.data_serial = data_serial
        self.unanswered = 0
        self.locked: frozenset[int] = frozenset()


class Asked(NamedTuple):
    """The context of a ticket. ``change`` is None for requests about the whole transaction."""

    nid: int
    channel: Channel
    oid: bytes | None = None
    change: Change | None = None


class Options(NamedTuple):
    """Settings of transactions. ``compress``: level of zlib. ``unanswered_max``, ``cached_max``: bytes of
    data in memory that wait for answers, for the cache."""

    compress: int
    unanswered_max: int
    cached_max: int
