"""The admin node: mirrors the tables of the primary master and relays the commands of ``neoctl``.

Theory of operation
-------------------
:class:`PrimaryLink` keeps the node connected to the primary master, whose tables it mirrors. Questions
about these are answered from the mirror. Commands are forwarded with new message ids, and their
answers, including refusals, are copied back (specification 17.3). Without a primary, every question is
refused and its connection closed, so that no peer reads a stale mirror.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from neo.admin.alerts import Alerts, Mailer
from neo.admin.control import ControlHandler
from neo.admin.health import Examiner
from neo.admin.monitor import SERVING
from neo.admin.observing import Observer
from neo.admin.page.overview import Overview
from neo.admin.primary import PrimaryLink
from neo.admin.reporting import Reporter
from neo.admin.watching import Watching
from neo.node.core import Core, Readiness
from neo.node.figures import Sample, build
from neo.node.handler import Handler
from neo.node.host import Host
from neo.protocol.packets import Address
from neo.topology.masters import MasterCandidates

#: Default lag of a backup that is a warning.
MAX_LAG_SECONDS = 60.0


@dataclass(frozen=True)
class AdminSettings:
    """``bind``: this node's address, sent to the master. ``backups``: names of the backup clusters of
    this cluster. ``max_lag``: seconds of lag, of one of them or of this cluster as a backup, above which
    there is a warning. ``page``: whether the web page is served."""

    cluster: str
    bind: Address
    backups: tuple[str, ...] = ()
    max_lag: float = MAX_LAG_SECONDS
    page: bool = False


class AdminCore(Core):
    """``remember``: stores the addresses of all masters. ``mailer``: None if no mails are configured."""

    must_identify = False

    def __init__(
        self,
        host: Host,
        settings: AdminSettings,
        masters: MasterCandidates,
        remember: Callable[[list[Address]], None],
        mailer: Mailer | None = None,
    ) -> None:
        super().__init__(host)
        self.settings = settings
        self._masters = masters
        self._remember = remember
        cluster, backups = settings.cluster, settings.backups
        self.link = PrimaryLink(self, cluster, settings.bind, backups, masters, self)
        watching = Watching(backups)
        examiner = Examiner(self, self.link, watching, settings.max_lag)
        self.observer = Observer(self, self.link, examiner, watching)
        self.overview = Overview(self, self.link, examiner, watching, cluster, settings.max_lag)
        self._reporter = Reporter(self, self.link, cluster)
        self._control = ControlHandler(self, self.link, watching, examiner)
        self._alerts = None if mailer is None else Alerts(self, examiner, cluster, mailer)

    def start(self) -> None:
        super().start()
        self.spawn(self.link.follow())
        if self._alerts is not None:
            self._alerts.start()
        if self.settings.page:
            self.overview.start()

    def readiness(self) -> Readiness:
        """The pages say more (:mod:`neo.admin.http`)."""
        primary = self.link.primary
        ready = primary is not None and primary.state in SERVING
        return Readiness(ready, "the cluster serves" if ready else "the cluster does not serve")

    def samples(self) -> Iterator[Sample]:
        yield build(self.settings.cluster, "admin")
        yield from super().samples()

    def stranger_handler(self) -> Handler:
        return self._control

    # -- events of the primary master --------------------------------------------------------------

    def nodes_changed(self, masters: list[Address]) -> None:
        if self._masters.add(masters):
            self._remember(self._masters.addresses)

    def cluster_changed(self) -> None:
        self._reporter.changed()

    def upstream_admin(self, address: Address) -> None:
        self._reporter.upstream(address)

    def flush_log(self) -> None:
        self.host.reopen_logs()
