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
the round of the other (whose estimate it needed), and round 0 of the next transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from neo.transactor.messages import NEVER, Vote

#: Up to so many members, each majority is all of them.
ALL_NEEDED = 2


class Learner:
    def __init__(self) -> None:
        #: Transaction and round where the others were, after they read our question.
        self.answers: dict[int, tuple[int, int]] = {}

    def counted(self, q: int, tid: int, round_: int) -> None:
        self.answers[q] = max((tid, round_), self.answers.get(q, (0, 0)))

    def enough(self, me: int, former: Sequence[int]) -> bool:
        """Whether every majority of ``former`` has, besides this node, somebody who answered."""
        answers = self._of(me, former)
        if len(former) <= ALL_NEEDED:
            return len(answers) == len([q for q in former if q != me])
        return len(answers) > len(former) - (len(former) // 2 + 1)

    def may_vote(self, me: int, former: Sequence[int], members: Sequence[int], tid: int) -> bool:
        """``former`` took part in transaction ``tid - 1``, ``members`` do in ``tid``, the next here."""
        if me not in members or not self.enough(me, former):
            return False
        newest, _ = max(self._of(me, former), default=(0, 0))
        if len(former) <= ALL_NEEDED and len(members) <= ALL_NEEDED:
            return tid >= newest
        return tid > newest + 1

    def promises(self, me: int, former: Sequence[int]) -> list[Vote]:
        """What to promise before voting: no part in rounds where it may have had one."""
        if len(former) > ALL_NEEDED:
            return []
        newest, round_ = max(self._of(me, former), default=(0, 0))
        return [Vote(newest, round_ + 1, None, NEVER), Vote(newest + 1, 1, None, NEVER)]

    def _of(self, me: int, group: Sequence[int]) -> list[tuple[int, int]]:
        return [self.answers[q] for q in group if q != me and q in self.answers]
