"""Tell people by mail when the health of the cluster, or of a backup, changes.

A state must last for two looks before it is told, so that a commit after a quiet night is no alarm for
a backup that has it a moment later. What keeps changing is told, too, as it is then. A mail that could
not be sent is tried again at the next look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from neo.protocol.packets import AnswerMonitorInformation

if TYPE_CHECKING:
    from neo.admin.core import AdminCore

logger = logging.getLogger("neo.admin")

#: How often the state is looked at.
LOOK_SECONDS = 30.0
#: After so many looks that differ from what people know, they hear of it although it still changes.
CHANGING_LOOKS = 4

Severities = tuple[tuple[str, ...], tuple[str, ...]]


class Mailer(Protocol):
    def send(self, subject: str, text: str, sent: Callable[[str | None], None]) -> None:
        """``sent`` is called on the loop's thread, with the reason if it failed."""


class Alerts:
    def __init__(self, core: AdminCore, mailer: Mailer) -> None:
        self._core = core
        self._mailer = mailer
        #: What people know; at the beginning they think that all is well.
        self._known: Severities = ((), ())
        self._seen: Severities = ((), ())
        self._untold = 0  # looks in a row that found something else than people know
        self._sending = False

    def start(self) -> None:
        self._core.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._core.examine(self._examined)
        self._core.call_later(LOOK_SECONDS, self._look)

    def _examined(self, found: AnswerMonitorInformation | None) -> None:
        """None: there is no primary master."""
        own = self._core.cluster
        if found is None:
            found = AnswerMonitorInformation([], [None], "no primary master is connected")
        severities: Severities = (
            tuple(own if name is None else name for name in found.warning_list),
            tuple(own if name is None else name for name in found.problem_list),
        )
        self._untold = 0 if severities == self._known else self._untold + 1
        lasting = severities == self._seen or self._untold >= CHANGING_LOOKS
        self._seen = severities
        if lasting and self._untold and not self._sending:
            self._tell(severities, found.summary)

    def _tell(self, severities: Severities, summary: str) -> None:
        warnings, problems = severities
        parts = []
        if problems:
            parts.append(f"PROBLEM: {', '.join(problems)}")
        if warnings:
            parts.append(f"WARNING: {', '.join(warnings)}")
        subject = f"NEO {self._core.cluster}: {'; '.join(parts) or 'OK'}"

        def sent(failure: str | None) -> None:
            self._sending = False
            if failure is None:
                self._known = severities
            else:
                logger.error("the mail %r could not be sent: %s", subject, failure)

        self._sending = True
        self._mailer.send(subject, summary + "\n", sent)
