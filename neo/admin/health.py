"""Examine the health of this cluster and of its backups: the answer to AskMonitorInformation."""

from __future__ import annotations

import logging
from collections.abc import Callable

from neo.admin.monitor import (
    SERVING,
    Health,
    examine,
    examine_conditions,
    examine_prepared,
    examine_sync,
)
from neo.admin.primary import Primary, PrimaryLink
from neo.admin.watching import Watching
from neo.node.core import Core
from neo.node.task import Future, first
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURE_OURS,
    A,
    AnswerMonitorInformation,
    AnswerSync,
    AskLastTransaction,
    AskNodeConditions,
    AskPrepared,
    AskRecovery,
    AskSync,
    AskUpstream,
)

logger = logging.getLogger("neo.admin")

BACKUP_STATES = (ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
#: Timeout of the answers of backups.
REFRESH_SECONDS = 5.0

#: Called with the answer, or with None if there is no primary master.
Done = Callable[[AnswerMonitorInformation | None], None]


class Examiner:
    """``max_lag``: a backup that is more seconds behind is a warning."""

    def __init__(self, node: Core, link: PrimaryLink, watching: Watching, max_lag: float) -> None:
        self._node = node
        self._link = link
        self._watching = watching
        self._max_lag = max_lag
        #: Node, kind and severity of what storage nodes said in the last examination.
        self.conditions: frozenset[tuple[int, str, str]] = frozenset()

    def examine(self, done: Done) -> None:
        """Examine all clusters, then call ``done``."""
        primary = self._link.primary
        if primary is None:
            self.conditions = frozenset()
            done(None)
        else:
            self._node.spawn(self._examine(primary, done))

    async def _examine(self, primary: Primary, done: Done) -> None:
        backup = primary.state in BACKUP_STATES
        ask_tid = primary.peer.ask(AskLastTransaction())
        ask_backup = primary.peer.ask(AskRecovery()) if backup else None
        ours = FEATURE_OURS in primary.features
        serving = ours and primary.state in SERVING
        ask_upstream = primary.peer.ask(AskUpstream()) if ours and backup else None
        ask_prepared = primary.peer.ask(AskPrepared(0, None)) if serving else None
        ask_sync = primary.peer.ask(AskSync()) if serving else None
        ask_conditions = primary.peer.ask(AskNodeConditions()) if ours else None
        refreshed = self._watching.refresh(self._node)
        # A backup that does not answer must not block the answer about this cluster.
        limit = self._node.sleep(REFRESH_SECONDS)
        try:
            last_tid = (await ask_tid).tid
            backup_tid = None if ask_backup is None else (await ask_backup).backup_tid
            upstream, prepared = await _applying(ask_upstream), await _applying(ask_prepared)
            sync, conditions = await _applying(ask_sync), await _applying(ask_conditions)
        except (ConnectionLost, ErrorAnswer) as e:
            logger.info("the primary master does not tell its last transaction: %s", e)
            self.conditions = frozenset()
            done(None)
            return
        for future in refreshed:
            await first(future, limit)
        now = self._node.host.time()
        more = examine_prepared([] if prepared is None else prepared.row_list, now)
        more = more.plus(examine_sync(sync or AnswerSync([], None), now))
        rows = [] if conditions is None else conditions.row_list
        more = more.plus(examine_conditions(rows))
        self.conditions = frozenset((nid, kind, level) for nid, (kind, level, _, _) in rows)
        unheard = None if upstream is None else upstream.seconds
        done(self._answer(primary, last_tid, backup_tid, unheard, more))

    def _answer(
        self,
        primary: Primary,
        last_tid: bytes,
        backup_tid: bytes | None,
        unheard: float | None,
        more: Health,
    ) -> AnswerMonitorInformation:
        """Return the answer. In its lists, None stands for this cluster among names of backup
        clusters."""
        partitions, nodes = primary.mirror.partitions, primary.mirror.nodes
        own = examine(
            state=primary.state,
            partitions=partitions,
            nodes=nodes,
            last_tid=last_tid,
            backup_tid=backup_tid,
            max_lag=self._max_lag,
            unheard=unheard,
        ).plus(more)
        healths: dict[str | None, Health] = {None: own}
        for name, watched in self._watching.backups.items():
            healths[name] = watched.health(backup_tid or last_tid, self._max_lag)
        return AnswerMonitorInformation(
            [name for name, health in healths.items() if health.warning and not health.problem],
            [name for name, health in healths.items() if health.problem],
            "\n".join(
                [own.summary]
                + [f"\n{n}\n    {h.summary}" for n, h in healths.items() if n is not None]
            ),
        )


async def _applying(asked: Future[A] | None) -> A | None:
    """Return the answer; None if the master was not asked, or says that the question does not apply,
    such as that about the upstream cluster when backup mode has ended."""
    try:
        return None if asked is None else await asked
    except ErrorAnswer as e:
        if e.code is ErrorCode.DENIED:
            return None
        raise
