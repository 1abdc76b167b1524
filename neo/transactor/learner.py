"""The rule by which a node that lost its logs may vote again.

The node has forgotten its promises. It may have voted in transaction t. Then t - 1 was decided before,
by a majority of its members, and the members that acknowledged it are at t - 1 or later ever since. The
node asks its peers where they are *now* (Census). Once every majority contains, besides the node
itself, a peer that has answered, each forgotten promise is for a transaction up to the greatest answer
plus one. The node votes in later transactions only. Until then it is a learner, and lets the log grow
with empty transactions.

With one or two members a majority needs every member, so nothing is decided without this node. Whatever
it helped to decide, the other member has adopted and keeps. So the node may vote as soon as it knows
what the other one knows, but must not propose again in a round in which it may have proposed. Those
rounds are not later than the round of the other member (whose estimate it needed), and round 0 of the
next transaction. If the transaction in which the other one is adds members, the node may have known it
before the other one, and have voted with the new members in later transactions. Then it votes in this
one, and goes on learning.
"""

from __future__ import annotations

from collections.abc import Sequence

from neo.transactor.messages import NEVER, Vote

#: Up to this number of members, each majority is all of them.
ALL_NEEDED = 2


class Learner:
    def __init__(self, alone: bool) -> None:
        """``alone``: the configuration names no other node, so there is no peer to ask."""
        self.alone = alone
        #: Transaction and round of each peer after it had read the census.
        self.answers: dict[int, tuple[int, int]] = {}

    def counted(self, q: int, tid: int, round_: int) -> None:
        self.answers[q] = max((tid, round_), self.answers.get(q, (0, 0)))

    def asked(self, me: int, former: Sequence[int], members: Sequence[int]) -> list[int]:
        """Return the peers whose answers count.

        ``former`` took part in transaction ``tid - 1``, ``members`` take part in ``tid``, the next one
        here. Of two members the other one counts, because nothing is decided without it, and a former
        member may be gone for ever.
        """
        return [q for q in (members if len(members) == ALL_NEEDED else former) if q != me]

    def enough(self, me: int, former: Sequence[int], members: Sequence[int]) -> bool:
        """Return whether every majority contains, besides this node, a peer that has answered."""
        asked = self.asked(me, former, members)
        answers = sum(q in self.answers for q in asked)
        if len(members) == 1 and not self.alone:
            return False  # other members existed or will exist, and may know more
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
        """Return the promises to record before voting: no part in rounds in which it may have voted."""
        newest, round_ = self._newest(me, former, members)
        if len(members) > ALL_NEEDED or not newest:
            return []
        if tid > newest:
            return [Vote(tid, 1, None, NEVER)]
        return [Vote(tid, round_ + 1, None, NEVER), Vote(tid + 1, 1, None, NEVER)]

    def _newest(self, me: int, former: Sequence[int], members: Sequence[int]) -> tuple[int, int]:
        asked = self.asked(me, former, members)
        return max((self.answers[q] for q in asked if q in self.answers), default=(0, 0))
