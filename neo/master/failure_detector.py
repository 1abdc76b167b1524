"""The primary of several masters gives up storage nodes that fall silent, if others have what they have.

A commit waits for all nodes of its partitions. A node whose machine vanished, or that is cut off from
the primary but not from everybody, would be waited for until TCP gives up; it has left this primary long
before, as storage nodes watch their primary, too (:mod:`neo.node.bootstrap`). The others go on without
it, and it catches up later (decision 25).

Only one that others can replace now: no last copy is given up, nor one of two of which the other has
not answered for half as long, for then it is the network, or this master, that is slow. Nodes of other
implementations may be busy for longer; they are left to TCP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neo.master.commit.votes import operational_without
from neo.master.states import SERVING
from neo.node.liveness import LOOK_SECONDS, Pulse

if TYPE_CHECKING:
    from neo.master.core import MasterCore

#: Twice what a storage node waits for its primary: it may be held up by its disk.
SILENCE_SECONDS = 5.0


class FailureDetector:
    def __init__(self, master: MasterCore) -> None:
        self._master = master
        self._pulses: dict[int, Pulse] = {}

    def tick(self) -> None:
        """To be called once; it comes again by itself."""
        master, before, self._pulses = self._master, self._pulses, {}
        silent: list[Pulse] = []
        doubtful: set[int] = set()
        for peer in master.storages() if master.state in SERVING else ():
            assert peer.node is not None and peer.node.nid is not None
            if not peer.node.features:
                continue
            pulse = before.get(peer.node.nid)
            if pulse is None or pulse.peer is not peer:
                pulse = Pulse(peer)
            self._pulses[peer.node.nid] = pulse
            seconds = pulse.look()
            if seconds > SILENCE_SECONDS / 2:
                doubtful.add(peer.node.nid)
            if seconds > SILENCE_SECONDS:
                silent.append(pulse)
        if silent and self._dispensable(doubtful):
            for pulse in silent:
                pulse.peer.lost("it does not answer, and others have all that it has")
        master.call_later(LOOK_SECONDS, self.tick)

    def _dispensable(self, nids: set[int]) -> bool:
        master = self._master
        others = master.running_storages() - nids
        return operational_without(master, nids) and master.published.missing(others) is None
