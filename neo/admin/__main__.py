"""``neoadmin``: the command."""

from __future__ import annotations

import argparse
import sys
from ipaddress import ip_address

from neo.admin.core import AdminCore, AdminSettings
from neo.admin.http import AdminPages
from neo.admin.page.access import Access
from neo.admin.page.accounts import Accounts
from neo.admin.page.site import Site
from neo.admin.smtp import Smtp
from neo.net.sockets import LOOPBACK, format_address, is_loopback, parse_address
from neo.net.tls import tls_context
from neo.node.config import ConfigError, Option, load, names, role_options
from neo.node.known_masters import RememberedMasters
from neo.node.node_host import NodeHost
from neo.node.process import main as run
from neo.topology.masters import MasterCandidates
from neoctl.page import PageCommander


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
    Option("monitor_backup", "names of standby clusters to watch over, separated by spaces", names),
    Option(
        "monitor_maxlag", "seconds that a standby may be behind without a warning", seconds, 60.0
    ),
    Option("smtp", "mail server, host:port, that is told of problems", parse_address),
    Option("smtp_from", "sender of these mails"),
    Option("smtp_to", "their recipients, separated by spaces", names),
    Option("smtp_tls", "use STARTTLS with the mail server", flag=True),
    Option("smtp_login", "user:password for the mail server", secret=lambda text: ":" in text),
    Option(
        "http_passwords",
        "file of those who may sign in on the web page, made by: neoctl password FILE NAME"
        " (default: nobody)",
    ),
)


def load_settings(argv: list[str]) -> argparse.Namespace:
    """Return the settings. Raises ConfigError."""
    settings = load("admin", DESCRIPTION, OPTIONS, argv)
    if settings.bind is None:
        raise ConfigError("setting 'bind' is missing: the address where neoctl finds this node")
    _check_mail(settings)
    _check_passwords(settings)
    return settings


def _check_mail(settings: argparse.Namespace) -> None:
    given = [name for name in ("smtp", "smtp_from", "smtp_to") if getattr(settings, name)]
    if given and len(given) < 3:
        raise ConfigError(
            f"mails need all of smtp, smtp_from and smtp_to: only {' and '.join(given)} is given"
        )
    if settings.smtp_login and ":" not in settings.smtp_login:
        raise ConfigError("setting 'smtp_login': user:password expected")


def _check_passwords(settings: argparse.Namespace) -> None:
    if settings.http_passwords is None:
        return
    if settings.http is None:
        raise ConfigError("setting 'http_passwords' needs 'http', the address of the web page")
    if not (settings.ca or is_loopback(settings.http)):
        raise ConfigError(
            "setting 'http_passwords': others could read passwords on their way to"
            f" {format_address(settings.http)}: set ca, cert and key, or write http ="
            f" {settings.http[1]}, which is on loopback"
        )
    try:
        Accounts(settings.http_passwords).read()
    except ValueError as e:
        raise ConfigError(f"setting 'http_passwords': {e}") from None


def _access(host: NodeHost, settings: argparse.Namespace) -> Access:
    """Return what signs in. Its commands are those of neoctl, over a connection to this node."""
    if settings.http_passwords is None:
        return Access(settings.cluster, None, None, host.monotonic)
    assert host.bind is not None
    ip = ip_address(host.bind[0].partition("%")[0])
    here = ("::1" if ip.version == 6 else LOOPBACK) if ip.is_unspecified else host.bind[0]
    tls = None
    if settings.ca:
        tls = tls_context(settings.ca, settings.cert, settings.key, server=False)
    commander = PageCommander((here, host.bind[1]), tls)
    return Access(settings.cluster, Accounts(settings.http_passwords), commander, host.monotonic)


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
    host.site = Site(core.overview, host.from_thread, _access(host, settings))
    return core


def main() -> int:
    return run("admin", load_settings, make_core)


if __name__ == "__main__":
    sys.exit(main())
