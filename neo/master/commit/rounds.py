"""Requests that several storage nodes must execute durably before the master goes on.

A round is over when all its nodes have answered or were lost, and every master would come to a partition
table in which the lost ones are out of date (specification 24.5). A node that gets a cell meanwhile is
asked, too.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from functools import partial

from neo.master.cluster import Cluster
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import Answer, Request


@dataclass(slots=True, eq=False)
class Round:
    """``nodes``: return the storage nodes that must execute the request, as far as they are connected.
    ``done``: called when the round is over. ``failed``: called with the error of a node."""

    request: Request[Answer]
    nodes: Callable[[], Set[int]]
    done: Callable[[], None]
    failed: Callable[[Peer, ErrorAnswer], None]
    asked: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)


class Rounds:
    """Bound: one round for each xid that a coordinator decides or forgets, or that is purged."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.open: list[Round] = []

    def begin(self, round_: Round) -> None:
        self.open.append(round_)
        self._ask(round_)
        self.evaluate()

    def end(self, round_: Round) -> None:
        """Forget a round, whose answers do not matter any more. Idempotent."""
        if round_ in self.open:
            self.open.remove(round_)

    def _ask(self, round_: Round) -> bool:
        """Ask the nodes that were not asked yet. Return False if there are none."""
        more = round_.nodes() - round_.asked
        round_.asked |= more
        round_.waiting |= more
        for nid in sorted(more):
            if (storage := self._cluster.connected.get(nid)) is None:
                round_.waiting.discard(nid)
            else:
                storage.ask(round_.request).then(partial(self._answered, round_, storage, nid))
        return bool(round_.waiting)

    def _answered(self, round_: Round, storage: Peer, nid: int, answer: Future[Answer]) -> None:
        try:
            answer.result()
        except ConnectionLost:
            return  # storage_lost() takes the node out of the round
        except ErrorAnswer as e:
            if round_ in self.open:
                round_.failed(storage, e)
            return
        round_.waiting.discard(nid)
        self._cluster.events.commits_advanced()

    def evaluate(self) -> None:
        """End the rounds that are over. Call when commits have advanced."""
        for round_ in list(self.open):
            if not self._cluster.published.complete:
                break
            if round_ in self.open and not round_.waiting and not self._ask(round_):
                self.open.remove(round_)
                round_.done()

    def storage_lost(self, nid: int) -> None:
        """Take a storage node out of all rounds. It is asked again if it comes back with a cell."""
        for round_ in self.open:
            round_.asked.discard(nid)
            round_.waiting.discard(nid)

    def clear(self) -> None:
        self.open.clear()
