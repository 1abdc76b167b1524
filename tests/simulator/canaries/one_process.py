"""Bugs of connections between nodes of one process, and of direct reads."""

from __future__ import annotations

from typing import Any

from neo.node import local
from neo.node.local import Deliveries, LocalLink
from neo.protocol.packets import Message
from neo.storage.commit.participant import Participant
from neo.storage.serving.direct import DirectReads
from tests.simulator.planting import Canary, Patch

TOGETHER = {"machines": True, "masters": 1, "disk": "memory", "seconds": 2.0}
#: Of workloads that compare what they read with what was acknowledged.
DIRECT = {**TOGETHER, "workloads": ("bank", "visitors", "increments")}


def _at_once() -> list[Patch]:
    def put(self: Deliveries, link: LocalLink) -> None:
        link.deliver()

    return [(Deliveries, "put", put)]


def _newest_first() -> list[Patch]:
    def deliver(self: LocalLink) -> None:
        self._inbox.rotate(1)
        deliver_in_order(self)

    deliver_in_order = LocalLink.deliver
    return [(LocalLink, "deliver", deliver)]


def _close_overtakes() -> list[Patch]:
    def close(self: LocalLink) -> None:
        self.other._inbox.clear()
        original(self)

    original = LocalLink.close
    return [(LocalLink, "close", close)]


def _not_detached() -> list[Patch]:
    def detach(message: Message) -> Any:
        return message

    return [(local, "detach", detach)]


def _read_while_locked() -> list[Patch]:
    return [(Participant, "any_locked", False)]


def _read_before_commit() -> list[Patch]:
    def may_read(self: DirectReads, id_: bytes) -> bool:
        readable = self._cluster.operational and self._cells.has_readable(id_)
        return readable and not self._unlocks.any_locked

    return [(DirectReads, "_may_read", may_read)]


CANARIES = (
    Canary(
        name="local-delivery-at-once",
        slip="a flush delivers to the other node of the process on its own stack",
        oracle="a message is delivered while a core is at work",
        patches=_at_once,
        seeds=2,
        options=TOGETHER,
    ),
    Canary(
        name="local-newest-first",
        slip="of several events' messages, the newest are delivered first",
        oracle="messages arrive in another order than they were sent",
        patches=_newest_first,
        seeds=6,
        options=TOGETHER,
    ),
    Canary(
        name="local-close-overtakes",
        slip="a node that closes a connection drops what it sent just before",
        oracle="a connection is lost before its end has what was sent",
        patches=_close_overtakes,
        seeds=12,
        options=TOGETHER,
    ),
    Canary(
        name="local-lists-shared",
        slip="messages are passed as they are: sender and receiver have the same lists",
        oracle="each message is compared with what decoding its bytes gives",
        patches=_not_detached,
        seeds=2,
        options=TOGETHER,
    ),
    Canary(
        name="direct-read-while-locked",
        slip="a direct read does not look whether a transaction is locked",
        oracle="workloads, history: what was acknowledged, or changed together, is not seen",
        patches=_read_while_locked,
        first=2,
        seeds=15,
        options={**DIRECT, "knobs": ("TURN_DELIVERIES",)},
    ),
    Canary(
        name="direct-read-before-commit",
        slip="a direct read does not look whether what was unlocked is committed",
        oracle="workloads, history: a client does not see a transaction that it knows of",
        patches=_read_before_commit,
        first=6,
        seeds=10,
        options=DIRECT,
    ),
)
