"""Address of the admin node: from the command line, the environment, or ``neo.conf``, in this order."""

from __future__ import annotations

import argparse
import os
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from neo.net.sockets import parse_address
from neo.net.tls import tls_context
from neo.net.transport import is_here
from neo.node.config import ConfigError, read_file, read_section
from neo.protocol.packets import Address

#: Environment variable with the address of the admin node.
ADDRESS_VARIABLE = "NEO_ADMIN"


class SettingError(Exception):
    """An option of neoctl is wrong or missing. The message says what to write."""


class Target(NamedTuple):
    """The admin node to connect to. ``tls``: None for plain connections."""

    address: Address
    tls: ssl.SSLContext | None


def target(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Target:
    """Return the admin node that the options, the environment or the file name. Raises SettingError."""
    section: Mapping[str, str] = {}
    if options.file:
        advice = "choose that of the admin node with -s"
        try:
            name = options.section or _admin_section(options.file)
            section = read_section(options.file, name, advice)
        except ConfigError as e:
            raise SettingError(str(e)) from None
    address = options.address or environ.get(ADDRESS_VARIABLE) or section.get("bind")
    if not address:
        raise SettingError(
            "where is the admin node? Give -a HOST:PORT, or "
            f"-f neo.conf, or set {ADDRESS_VARIABLE} in the environment"
        )
    files = [getattr(options, name) or section.get(name) for name in ("ca", "cert", "key")]
    try:
        return Target(parse_address(address), _tls(*files))
    except ValueError as e:
        raise SettingError(str(e)) from None


def _admin_section(path: str) -> str:
    """Return the section of the admin node: ``admin``, else that of this machine, else the first."""
    parser = read_file(path)
    names = [name for name in parser.sections() if name.startswith("admin")]
    here = (name for name in names if _is_here(parser[name].get("bind", "")))
    return "admin" if "admin" in names else next(here, next(iter(names), "admin"))


def _is_here(bind: str) -> bool:
    try:
        return is_here(parse_address(bind)[0])
    except ValueError:
        return False


def _tls(ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext | None:
    if ca and cert and key:
        return tls_context(ca, cert, key, server=False)
    if ca or cert or key:
        raise ValueError("TLS needs all of --ca, --cert and --key")
    return None
