"""A node that lost its logs: when may it vote again?

It has forgotten what it promised. It may have voted in transaction t; then t - 1 was decided before, by
a majority of its members, and those who acknowledged it are at t - 1 or later ever since. The node asks
the others where they are *now* (Census). Once enough have answered that every majority contains one of
them besides the node itself, every promise that it can have made is for a transaction up to the greatest
answer plus one. It votes in later ones only; until then it learns, and lets the log grow with empty
transactions.

If a majority needs every member (one or two), nobody decides without this node. But then whatever it may
have helped to decide, the other adopted too and keeps: it may vote as soon as it knows what the other
knows. Only, it must not propose again in a round in which it may have proposed: those are not later than
the round of the other (whose estimate it needed), and round 0 of the next transaction. And if the
transaction in which the other is adds members, this node may have known that before the other did, and
have voted with the new ones in later transactions: then it votes in this one, and learns on.
"""

from __future__ import annotations

from collections.abc import Sequence

from neo.transactor.messages import NEVER, Vote

#: Up to so many members, each majority is all of them.
ALL_NEEDED = 2


class Learner:
    def __init__(self, alone: bool) -> None:
        """``alone``: no other node is known to the configuration, and there is nobody to ask."""
        self.alone = alone
        #: Transaction and round where the others were, after they read our question.
        self.answers: dict[int, tuple[int, int]] = {}

    def counted(self, q: int, tid: int, round_: int) -> None:
        self.answers[q] = max((tid, round_), self.answers.get(q, (0, 0)))

    def asked(self, me: int, former: Sequence[int], members: Sequence[int]) -> list[int]:
        """Whose answers count. ``former`` took part in transaction ``tid - 1``, ``members`` do in
        ``tid``, the next here. Without the other of two nothing is decided; who left may be gone."""
        return [q for q in (members if len(members) == ALL_NEEDED else former) if q != me]

    def enough(self, me: int, former: Sequence[int], members: Sequence[int]) -> bool:
        """Whether every majority of them has, besides this node, somebody who answered."""
        asked = self.asked(me, former, members)
        answers = sum(q in self.answers for q in asked)
        if len(members) == 1 and not self.alone:
            return False  # others were, or will be, members too, and may know more
        if len(members) <= ALL_NEEDED:
            return answers == len(asked)
        return answers > len(former) - (len(former) // 2 + 1)

    def may_vote(self, me: int, former: Sequence[int], members: Sequence[int], tid: int) -> bool:
        if me not in members or not self.enough(me, former, members):
            return False
        newest, _ = self._newest(me, former, members)
        return tid >= newest if len(members) <= ALL_NEEDED else tid > newest + 1

    def promises(
        self, me: int, former: Sequence[int], members: Sequence[int], tid: int
    ) -> list[Vote]:
        """What to promise before voting: no part in rounds where it may have had one."""
        newest, round_ = self._newest(me, former, members)
        if len(members) > ALL_NEEDED or not newest:
            return []
        if tid > newest:
            return [Vote(tid, 1, None, NEVER)]
        return [Vote(tid, round_ + 1, None, NEVER), Vote(tid + 1, 1, None, NEVER)]

    def _newest(self, me: int, former: Sequence[int], members: Sequence[int]) -> tuple[int, int]:
        asked = self.asked(me, former, members)
        return max((self.answers[q] for q in asked if q in self.answers), default=(0, 0))
