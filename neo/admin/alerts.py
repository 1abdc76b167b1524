"""Send mail when the health of the cluster, or of a backup, changes.

A change is reported when it has lasted for two checks, because a backup may lag for a moment after a
commit. One more problem is a change, although the cluster had a problem before. A health that keeps
changing is reported after some checks. A mail that could not be sent is sent again at the next check.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from neo.admin.health import Examiner
from neo.node.core import Core
from neo.protocol.packets import AnswerMonitorInformation

logger = logging.getLogger("neo.admin")

#: Interval of the checks.
LOOK_SECONDS = 30.0
#: After this many checks that differ from the last mail, a mail is sent although the health still
#: changes.
CHANGING_LOOKS = 4

Severities = tuple[tuple[str, ...], tuple[str, ...]]
#: With severity and subject of each problem of this cluster.
State = tuple[Severities, frozenset[tuple[str, str]]]


class Mailer(Protocol):
    def send(self, subject: str, text: str, sent: Callable[[str | None], None]) -> None:
        """Send a mail. ``sent`` is called on the thread of the event loop, with the reason of a
        failure."""


class Alerts:
    def __init__(self, node: Core, examiner: Examiner, cluster: str, mailer: Mailer) -> None:
        self._node = node
        self._examiner = examiner
        self._cluster = cluster
        self._mailer = mailer
        #: The state that the last mail reported; empty at the beginning.
        self._known: State = (((), ()), frozenset())
        self._seen: State = self._known
        self._untold = 0  # consecutive checks that differ from the last mail
        self._sending = False

    def start(self) -> None:
        self._node.call_later(LOOK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._examiner.examine(self._examined)
        self._node.call_later(LOOK_SECONDS, self._tick)

    def _examined(self, found: AnswerMonitorInformation | None) -> None:
        """Compare the health with the last mail. ``found``: None if there is no primary master."""
        own = self._cluster
        if found is None:
            found = AnswerMonitorInformation([], [None], "no primary master is connected")
        severities: Severities = (
            tuple(own if name is None else name for name in found.warning_list),
            tuple(own if name is None else name for name in found.problem_list),
        )
        state = severities, self._examiner.problems
        self._untold = 0 if state == self._known else self._untold + 1
        lasting = state == self._seen or self._untold >= CHANGING_LOOKS
        self._seen = state
        if lasting and self._untold and not self._sending:
            self._tell(state, found.summary)

    def _tell(self, state: State, summary: str) -> None:
        warnings, problems = state[0]
        parts = []
        if problems:
            parts.append(f"PROBLEM: {', '.join(problems)}")
        if warnings:
            parts.append(f"WARNING: {', '.join(warnings)}")
        subject = f"NEO {self._cluster}: {'; '.join(parts) or 'OK'}"

        def sent(failure: str | None) -> None:
            self._sending = False
            if failure is None:
                self._known = state
            else:
                logger.error("the mail %r could not be sent: %s", subject, failure)

        self._sending = True
        self._mailer.send(subject, summary + "\n", sent)
