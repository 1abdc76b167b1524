"""A world in which nothing is lost or late, unless a test says so."""

from __future__ import annotations

from collections import Counter

from neo.transactor.engine import Engine, Timing
from neo.transactor.messages import Refusal, Sid
from tests.unit.transactor.world import World

TIMING = Timing()


class Calm(World):
    """A world without loss. Time advances only when the test says so."""

    def __init__(self, count: int) -> None:
        super().__init__(1, count)
        self.timing = TIMING
        self.lossless = True
        self.log.clear()
        for node in self.nodes:
            node.start()
        self.counted: Counter[str] = Counter()
        self.packets = 0
        self.unheard: set[int] = set()

    def engine(self, index: int) -> Engine:
        engine = self.nodes[index].engine
        assert engine is not None
        return engine

    def hand_over(self, sender: int, to: int) -> None:
        """Deliver only the messages of one node for another."""
        self.nodes[sender].flush()
        self.nodes[sender].sync()
        messages = [each for each in self.network if each[:2] == (to, sender)]
        self.network = [each for each in self.network if each not in messages]
        for _, _, message in messages:
            self.nodes[to].receive(sender, message)
        self.nodes[to].flush()

    def pump(self) -> None:
        """Deliver all messages, answers too; messages of one reaction are one packet per peer."""
        busy = True
        while busy:
            busy = False
            for node in self.nodes:
                if node.engine is not None:
                    node.flush()
                    if node.disk.tail:
                        node.sync()
                        busy = True
            flying, self.network = self.network, []
            for to, sender, message in flying:
                if to in self.unheard or sender in self.unheard:
                    continue
                busy = True
                self.counted[type(message).__name__] += 1
                if self.nodes[to].engine is not None:
                    self.nodes[to].receive(sender, message)
            self.packets += len(
                {(to, sender) for to, sender, _ in flying if not {to, sender} & self.unheard}
            )

    def ticks(self, count: int) -> None:
        for _ in range(count):
            for node in self.nodes:
                if node.engine is not None and node.index not in self.unheard:
                    node.engine.tick()
            self.pump()

    def write(self, index: int, data: bytes = b"x") -> Sid | Refusal:
        result = self.engine(index).post(self.engine(index).tid, data)
        if isinstance(result, Sid):
            self.posted[result] = data
            self.wanted.add((self.engine(index).tid, result))
        return result

    def decide(self, index: int, data: bytes = b"x") -> Sid:
        """Post at a node, and wait for the decision."""
        tid = self.engine(index).tid
        result = self.write(index, data)
        assert isinstance(result, Sid)
        for _ in range(50):
            self.pump()
            if self.engine(index).tid > tid:
                break
            self.ticks(1)
        assert self.engine(index).last == result
        return result
