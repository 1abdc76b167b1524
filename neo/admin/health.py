"""Examine the health of this cluster and of its backups: the answer to AskMonitorInformation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from neo.admin.asking import ask_down
from neo.admin.facts import table_data
from neo.admin.judgement import BACKUP_STATES, Answers, Evidence, gather, judge, questions
from neo.admin.monitor import Health, count_prepared, examine
from neo.admin.primary import Primary, PrimaryLink
from neo.admin.problems import Problem
from neo.admin.watching import Watching
from neo.node.core import Core
from neo.node.task import Future, first
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURE_OURS,
    Answer,
    AnswerMonitorInformation,
    AskLastTransaction,
    AskRecovery,
    Request,
)

logger = logging.getLogger("neo.admin")

#: Timeout of the answers of backups.
REFRESH_SECONDS = 5.0

NOTHING_KNOWN: Answers = {}


class Examination(NamedTuple):
    """What a primary master answered, and what follows from it. ``last_tid``: of the upstream cluster if
    this is a backup; ``backup_tid``: up to which this backup is complete, else None."""

    last_tid: bytes
    backup_tid: bytes | None
    found: Evidence
    problems: list[Problem]
    answers: Answers


#: Called with the answer, or with None if there is no primary master.
Done = Callable[[AnswerMonitorInformation | None], None]


class Examiner:
    """``max_lag``: a backup that is more seconds behind is a warning."""

    def __init__(self, node: Core, link: PrimaryLink, watching: Watching, max_lag: float) -> None:
        self._node = node
        self._link = link
        self._watching = watching
        self._max_lag = max_lag
        #: Severity and subject of the problems of this cluster in the last examination.
        self.problems: frozenset[tuple[str, str]] = frozenset()

    def examine(self, done: Done) -> None:
        """Examine all clusters, then call ``done``."""
        primary = self._link.primary
        if primary is None:
            self.problems = frozenset()
            done(None)
        else:
            self._node.spawn(self._examine(primary, done))

    async def look(
        self, primary: Primary, *more: Request[Any], known: Answers = NOTHING_KNOWN
    ) -> Examination | None:
        """Ask a primary master, and judge. ``more``: questions besides those of the judgement, which only
        a master of ours knows. ``known``: answers that the judgement uses besides. Return None if the
        master is lost or refuses to answer."""
        ask_tid = primary.peer.ask(AskLastTransaction())
        ask_backup = primary.peer.ask(AskRecovery()) if primary.state in BACKUP_STATES else None
        ours = (*questions(primary.state), *more) if FEATURE_OURS in primary.features else ()
        asked = {type(question): primary.peer.ask(question) for question in ours}
        began = self._node.host.time()
        words = self._node.spawn(ask_down(self._node, primary.mirror.nodes))
        refreshed = self._watching.refresh(self._node)
        # A backup that does not answer must not block the answer about this cluster.
        limit = self._node.sleep(REFRESH_SECONDS)
        try:
            last_tid = (await ask_tid).tid
            backup_tid = None if ask_backup is None else (await ask_backup).backup_tid
            answers = {**known, **await _answers(asked)}
        except (ConnectionLost, ErrorAnswer) as e:
            logger.info("the primary master does not tell the health of the cluster: %s", e)
            return None
        for future in refreshed:
            await first(future, limit)
        table, rows = primary.mirror.partitions, [node.row() for node in primary.mirror.nodes]
        data = table_data(table.ptid, table.replicas, table.row_list(0, len(table)))
        found = gather(primary.state, rows, data, dict(await words), answers, last_tid, began)
        problems = judge(found, self._node.host.time())
        return Examination(last_tid, backup_tid, found, problems, answers)

    async def _examine(self, primary: Primary, done: Done) -> None:
        seen = await self.look(primary)
        if seen is None:
            self.problems = frozenset()
            done(None)
        else:
            self.problems = frozenset((each.severity, each.subject) for each in seen.problems)
            done(self._answer(primary, seen))

    def _answer(self, primary: Primary, seen: Examination) -> AnswerMonitorInformation:
        """Return the answer. In its lists, None stands for this cluster among names of backup
        clusters."""
        last_tid, backup_tid, found, problems, _ = seen
        own = examine(
            state=primary.state,
            partitions=primary.mirror.partitions,
            nodes=primary.mirror.nodes,
            last_tid=last_tid,
            backup_tid=backup_tid,
            max_lag=self._max_lag,
            unheard=None if found.upstream is None else found.upstream["seconds"],
        )
        severities = {problem.severity for problem in problems}
        prepared = count_prepared(found.prepared, self._node.host.time())
        own = own.plus(Health("problem" in severities, "warning" in severities, prepared))
        healths: dict[str | None, Health] = {None: own}
        for name, watched in self._watching.backups.items():
            healths[name] = watched.health(backup_tid or last_tid, self._max_lag)
        return AnswerMonitorInformation(
            [name for name, health in healths.items() if health.warning and not health.problem],
            [name for name, health in healths.items() if health.problem],
            "\n".join(
                [own.summary]
                + [f"{problem.severity}: {problem.text} -> {problem.advice}" for problem in problems]
                + [f"\n{n}\n    {h.summary}" for n, h in healths.items() if n is not None]
            ),
        )


async def _answers(
    asked: Mapping[type[Request[Any]], Future[Answer]],
) -> dict[type[Request[Any]], Answer]:
    """Return the answers, without those to questions that do not apply: there is one master, or backup
    mode has ended meanwhile."""
    answers: dict[type[Request[Any]], Answer] = {}
    for question, future in asked.items():
        try:
            answers[question] = await future
        except ErrorAnswer as e:
            if e.code is not ErrorCode.DENIED:
                raise
    return answers
