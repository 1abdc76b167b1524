"""Bugs of a client whose threads get exceptions from outside."""

from __future__ import annotations

from typing import Any

from neo.client.commit.finish import Finish
from neo.net.channel import Channel, Ticket
from neo.protocol.packets import Message
from tests.simulator.planting import Canary, Patch

INTERRUPTS: dict[str, Any] = {
    "workloads": ("bank", "counters"),
    "faults": ("interrupted",),
    "sites": ("none",),
    "disk": "memory",
    "seconds": 10.0,
}


def _interrupted_leader_keeps_the_lead() -> list[Patch]:
    def forget(self: Channel, ticket: Ticket[Any]) -> None:
        with self._mutex:
            ticket.forgotten = True
            self._awaited.discard(ticket)
            self._followers.pop(ticket, None)
            if self._leader is not ticket:
                self._rest()

    def present(self: Ticket[Any]) -> bool:
        return self.presence is not None

    return [(Channel, "forget", forget), (Ticket, "present", property(present))]


def _interrupted_finish_forgotten() -> list[Patch]:
    def finished_alone(self: Finish, answer: Message) -> None: ...

    return [(Finish, "_finished_alone", finished_alone)]


CANARIES = (
    Canary(
        "interrupted-leader-keeps-the-lead",
        "a leader thread that is interrupted does not pass the lead on, and counts as present",
        "progress: the other threads of its connection wait for ever",
        _interrupted_leader_keeps_the_lead,
        15,
        INTERRUPTS,
    ),
    Canary(
        "interrupted-finish-forgotten",
        "the answer to an interrupted tpc_finish is not given to the connections of ZODB",
        "reads, workloads: connections hold objects that the transaction has changed",
        _interrupted_finish_forgotten,
        80,
        INTERRUPTS,
        first=4,
    ),
)
