"""``neoadmin``: the command."""

from __future__ import annotations

import argparse
import sys

from neo.admin.core import AdminCore, AdminSettings
from neo.admin.http import AdminPages
from neo.admin.page.site import Site
from neo.admin.smtp import Smtp
from neo.net.sockets import parse_address
from neo.node.config import ConfigError, Option, load, names, role_options
from neo.node.known_masters import RememberedMasters
from neo.node.node_host import NodeHost
from neo.node.process import main as run
from neo.topology.masters import MasterCandidates


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number of seconds") from None
    if not 0 <= number < float("inf"):
        raise ValueError(f"{text} is not a possible number of seconds")
    return number


DESCRIPTION = "Admin node of a NEO cluster: neoctl talks to it."
OPTIONS = role_options(
    Option("monitor_backup", "names of backup clusters to watch over, separated by spaces", names),
    Option(
        "monitor_maxlag", "seconds that a backup may be behind without a warning", seconds, 60.0
    ),
    Option("smtp", "mail server, host:port, that is told of problems", parse_address),
    Option("smtp_from", "sender of these mails"),
    Option("smtp_to", "their recipients, separated by spaces", names),
    Option("smtp_tls", "use STARTTLS with the mail server", flag=True),
    Option("smtp_login", "user:password for the mail server", secret=lambda text: ":" in text),
)


def load_settings(argv: list[str]) -> argparse.Namespace:
    """Return the settings. Raises ConfigError."""
    settings = load("admin", DESCRIPTION, OPTIONS, argv)
    if settings.bind is None:
        raise ConfigError("setting 'bind' is missing: the address where neoctl finds this node")
    _check_mail(settings)
    return settings


def _check_mail(settings: argparse.Namespace) -> None:
    given = [name for name in ("smtp", "smtp_from", "smtp_to") if getattr(settings, name)]
    if given and len(given) < 3:
        raise ConfigError(
            f"mails need all of smtp, smtp_from and smtp_to: only {' and '.join(given)} is given"
        )
    if settings.smtp_login and ":" not in settings.smtp_login:
        raise ConfigError("setting 'smtp_login': user:password expected")


def _mailer(host: NodeHost, settings: argparse.Namespace) -> Smtp | None:
    if not settings.smtp:
        return None
    user, _, password = (settings.smtp_login or "").partition(":")
    return Smtp(
        settings.smtp,
        settings.smtp_from,
        tuple(settings.smtp_to),
        bool(settings.smtp_tls),
        (user, password) if user else None,
        host.from_thread,
    )


def make_core(host: NodeHost) -> AdminCore:
    """Return the core of the node. Raises ConfigError if the list of masters cannot be used."""
    settings = host.settings
    remembered = RememberedMasters(settings.dynamic_master_list)
    assert host.bind is not None
    backups, max_lag = tuple(settings.monitor_backup or ()), settings.monitor_maxlag
    core = AdminCore(
        host,
        AdminSettings(settings.cluster, host.bind, backups, max_lag, settings.http is not None),
        MasterCandidates([*settings.masters, *remembered.addresses]),
        remembered.save,
        _mailer(host, settings),
    )
    host.pages = AdminPages(settings.cluster, core.observer, host.from_thread, core.samples).page
    host.site = Site(core.overview, host.from_thread)
    return core


def main() -> int:
    return run("admin", load_settings, make_core)


if __name__ == "__main__":
    sys.exit(main())
