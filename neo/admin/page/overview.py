"""All that the web page shows, as data (specification 17.51).

Viewers share what was asked: the primary master is asked once in a second at most, however many pages are
open.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from neo import __version__
from neo.admin import facts
from neo.admin.facts import Data
from neo.admin.health import Examination, Examiner
from neo.admin.judgement import BACKUP_STATES, Answers, answer_to
from neo.admin.monitor import lag
from neo.admin.page.rates import SAMPLE_SECONDS, CommitRates
from neo.admin.primary import Primary, PrimaryLink
from neo.admin.status import status_data
from neo.admin.watching import Watching
from neo.node.core import Core
from neo.node.task import Task, first
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_TID, time_from_tid
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerContents,
    AskCommitCount,
    AskContents,
    AskLastIDs,
    AskNodeDisks,
    AskScrub,
    Request,
)

#: Timeout of the primary master and its storage nodes, which have 3 seconds: less than that of HTTP.
ANSWER_SECONDS = 6.0
#: Data that is younger is told again.
FRESH_SECONDS = 1.0
#: Storage nodes count their rows for AskContents: it is asked that rarely.
CONTENTS_SECONDS = 60.0
#: Bound of the listed transactions, the oldest ones; a page is read by a person.
LISTED_MAX = 20

#: Called with the data, on the loop's thread.
Done = Callable[[Data], None]


class Overview:
    """``max_lag``: seconds of lag of a backup that are a warning."""

    def __init__(
        self,
        node: Core,
        link: PrimaryLink,
        examiner: Examiner,
        watching: Watching,
        cluster: str,
        max_lag: float,
    ) -> None:
        self._node = node
        self._link = link
        self._examiner = examiner
        self._watching = watching
        self._cluster = cluster
        self._max_lag = max_lag
        self._rates = CommitRates()
        self._contents: AnswerContents | None = None
        self._contents_due = 0.0
        #: What was seen last, when by the clock and by the monotonic one, and whether the primary master
        #: has been there since.
        self._seen: Data | None = None
        self._seen_at = 0.0
        self._told_at = -FRESH_SECONDS
        self._connected = False
        self._waiting: list[Done] = []
        self._looking: Task[bool] | None = None

    def start(self) -> None:
        """Sample the rate of commits until the node stops. Call once."""
        self._node.spawn(self._sample())

    def tell(self, done: Done) -> None:
        """Call ``done`` with the data.

        Keys: ``cluster version now``; ``connected``: whether there is a primary master that answers;
        ``seen``: when ``status`` was true, seconds since 1970, null if it never was; ``status``: see
        :meth:`_data`, of the last time if the primary master is away; ``commits``: see
        :meth:`CommitRates.data`.
        """
        age = self._node.host.monotonic() - self._told_at
        if self._connected and age < FRESH_SECONDS and self._link.primary is not None:
            done(self._told())
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._node.spawn(self._refresh())

    async def _refresh(self) -> None:
        primary = self._link.primary
        if self._looking is None and primary is not None:
            self._looking = self._node.spawn(self._look(primary))
        looking, answered = self._looking, False
        if looking is not None:
            # A master that is silent is asked no more until it has answered, or is lost.
            await first(looking, self._node.sleep(ANSWER_SECONDS))
            if looking.done:
                answered, self._looking = looking.result(), None
        self._connected = answered and self._link.primary is primary
        self._told_at = self._node.host.monotonic()
        waiting, self._waiting = self._waiting, []
        told = self._told()
        for done in waiting:
            done(told)

    async def _look(self, primary: Primary) -> bool:
        """Ask a primary master. Return whether it answered."""
        now = self._node.host.monotonic()
        more: list[Request[Any]] = [AskLastIDs(), AskScrub(), AskNodeDisks()]
        if self._contents is None or now >= self._contents_due:
            more.append(AskContents())
            self._contents_due = now + CONTENTS_SECONDS
        known: Answers = {} if self._contents is None else {AskContents: self._contents}
        seen = await self._examiner.look(primary, *more, known=known)
        if seen is None or primary.nid is None:
            return False
        self._contents = answer_to(seen.answers, AskContents)
        self._seen, self._seen_at = self._data(primary.nid, seen), self._node.host.time()
        return True

    def _data(self, nid: int, seen: Examination) -> Data:
        """Return what :func:`neo.admin.status.status_data` does; and ``last_time`` of the last
        transaction, seconds since 1970, null if there is none; ``lag``: seconds of this cluster as a
        backup, null if it is none or hears nothing; ``backups`` that this node watches: ``name severity
        state lag text``; ``transactions``: the oldest open ones, and ``open``: how many there are;
        ``prepared``: the first prepared ones, and ``undecided``: how many there are."""
        found, answers = seen.found, seen.answers
        ids, disks = answer_to(answers, AskLastIDs), answer_to(answers, AskNodeDisks)
        heard = found.upstream is None or found.upstream["heard"]
        rows = sorted(found.transactions, key=lambda row: -row[3])
        return {
            **status_data(
                found,
                seen.problems,
                primary=nid,
                last_oid=None if ids is None else ids.loid,
                last_tid=seen.last_tid,
                scrub=answer_to(answers, AskScrub),
                disks=[] if disks is None else disks.row_list,
            ),
            "last_time": None if seen.last_tid == ZERO_TID else time_from_tid(seen.last_tid),
            "lag": lag(seen.backup_tid, seen.last_tid) if heard else None,
            "backups": self._backups(seen),
            "transactions": facts.transaction_data(rows[:LISTED_MAX]),
            "open": len(rows),
            "prepared": facts.prepared_data(list(islice(found.prepared, LISTED_MAX))),
            "undecided": len(found.prepared),
        }

    def _backups(self, seen: Examination) -> list[Data]:
        last = seen.backup_tid or seen.last_tid
        rows: list[Data] = []
        for name, watched in self._watching.backups.items():
            health = watched.health(last, self._max_lag)
            state = None if watched.peer is None else watched.state
            row = {"name": name, "state": None if state is None else state.name, "text": health.summary}
            row["severity"] = "problem" if health.problem else "warning" if health.warning else None
            rows.append({**row, "lag": None if state is None else lag(watched.tid, last)})
        return rows

    def _told(self) -> Data:
        return {
            "cluster": self._cluster,
            "version": __version__,
            "now": self._node.host.time(),
            "connected": self._connected,
            "seen": None if self._seen is None else self._seen_at,
            "status": self._seen,
            "commits": self._rates.data(self._node.host.monotonic()),
        }

    async def _sample(self) -> None:
        """A backup commits nothing itself, and a master of another implementation counts nothing: their
        rates are not known."""
        while True:
            primary = self._link.primary
            counts = primary is not None and FEATURE_OURS in primary.features
            if primary is None or not counts or primary.state in BACKUP_STATES:
                self._rates.miss(self._node.host.monotonic())
            else:
                try:
                    answer = await primary.peer.ask(AskCommitCount())
                except (ConnectionLost, ErrorAnswer):
                    self._rates.miss(self._node.host.monotonic())
                else:
                    now = self._node.host.monotonic()
                    self._rates.add(now, answer.since, answer.count)
            await self._node.sleep(SAMPLE_SECONDS)
