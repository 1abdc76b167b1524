"""The configuration file and the command line of the daemon."""

from __future__ import annotations

import argparse
import configparser
from pathlib import Path
from typing import NamedTuple

from neo import __version__
from neo.transactor.debug import parse_mask
from neo.transactor.links import MTU_SIZES
from neo.transactor.members import Address, Members, first_members, is_host


class ConfigError(Exception):
    """A setting is wrong; the message names it."""


class Config(NamedTuple):
    """The section ``[transactor]``, and the peers of the section ``[peers]``."""

    name: str
    peers: dict[str, Address]
    #: Listening address for peers; by default the node's own entry among the peers.
    bind: Address
    service: Address
    #: The listening address for operators, or the path of a Unix socket.
    admin: Address | str
    tlog: str
    mlog: str
    pidfile: str
    #: Shared secret of the peers; packets are sealed with keys derived from it.
    key: str
    #: Shared secret of application servers; empty: no authentication.
    service_secret: str
    #: Secret of operators; required if ``admin`` is an address.
    admin_secret: str
    #: Folder for the files that commands of operators write.
    debug_folder: str
    #: Seconds of silence before an application server is pinged; 0: never.
    keepalive: float
    #: Seconds of silence before a peer is suspected.
    silence: float
    log: str
    signal_dumpfile: str
    udp: bool
    mtu: int

    @property
    def members(self) -> Members:
        return first_members(self.peers.items())


REQUIRED = ("name", "service", "tlog", "mlog")
#: Settings that are used as they are written.
TEXTS = ("pidfile", "key", "service_secret", "admin_secret", "log", "signal_dumpfile")
DEFAULTS = dict.fromkeys((*TEXTS, "bind", "admin", "debug_folder"), "") | {
    "keepalive": "0",
    "silence": "1.5",
    "udp": "yes",
    "mtu": str(MTU_SIZES[-1]),
}


def parse_address(text: str, setting: str) -> Address:
    """Parse ``host:port`` or ``[ipv6]:port``. Raises ConfigError."""
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not is_host(host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"setting {setting!r}: {text!r} is not an address: write host:port")
    return host, int(port)


def load(path: str) -> Config:
    """Read and check a configuration file. Raises ConfigError."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        with open(path, encoding="utf-8") as f:
            parser.read_file(f)
        given = dict(parser["transactor"])
        peers = {name: parse_address(text, name) for name, text in parser["peers"].items()}
    except OSError as e:
        raise ConfigError(f"configuration file {path} cannot be read: {e.strerror}") from None
    except KeyError as e:
        raise ConfigError(f"configuration file {path} has no section [{e.args[0]}]") from None
    except (configparser.Error, UnicodeDecodeError) as e:
        raise ConfigError(f"configuration file {path}: {e}") from None
    unknown = sorted(given.keys() - {*REQUIRED, *DEFAULTS})
    if unknown:
        raise ConfigError(f"unknown setting {unknown[0]!r} in section [transactor] of {path}")
    missing = [name for name in REQUIRED if not given.get(name)]
    if missing:
        raise ConfigError(f"setting {missing[0]!r} is missing in section [transactor] of {path}")
    settings = DEFAULTS | given
    name = settings["name"]
    if name not in peers:
        raise ConfigError(f"setting 'name': {name} is not in section [peers] of {path}")
    return Config(
        name=name,
        peers=peers,
        bind=parse_address(settings["bind"], "bind") if settings["bind"] else peers[name],
        service=parse_address(settings["service"], "service"),
        admin=_admin(settings),
        **{key: settings[key] for key in ("tlog", "mlog", *TEXTS)},
        debug_folder=settings["debug_folder"] or _beside(settings["mlog"], "debug"),
        keepalive=_seconds(settings, "keepalive"),
        silence=_seconds(settings, "silence"),
        udp=_flag(settings, "udp"),
        mtu=_mtu(settings["mtu"]),
    )


def _beside(path: str, name: str) -> str:
    """Return the absolute path of ``name`` in the folder of the file ``path``."""
    return str(Path(path).absolute().parent / name)


def _admin(settings: dict[str, str]) -> Address | str:
    """Return the address or path of the admin port. An address needs a secret. Raises ConfigError."""
    text = settings["admin"]
    if not text:
        return _beside(settings["mlog"], "admin.sock")
    if "/" in text:
        return str(Path(text).absolute())
    address = parse_address(text, "admin")
    if not settings["admin_secret"]:
        raise ConfigError(
            f"setting 'admin_secret' is missing: any client that reaches {text} could command the"
            " transactor; set it, or let 'admin' be the path of a socket, or remove 'admin'"
        )
    return address


def _seconds(settings: dict[str, str], name: str) -> float:
    try:
        value = float(settings[name])
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise ConfigError(f"setting {name!r}: {settings[name]!r} is not a number of seconds")
    return value


def _flag(settings: dict[str, str], name: str) -> bool:
    value = settings[name].lower()
    if value not in ("yes", "no"):
        raise ConfigError(f"setting {name!r}: {settings[name]!r} is neither yes nor no")
    return value == "yes"


def _mtu(text: str) -> int:
    if not text.isdecimal() or not MTU_SIZES[0] <= int(text) <= 65507:
        raise ConfigError(f"setting 'mtu': {text!r} is not a size from {MTU_SIZES[0]} to 65507")
    return int(text)


class Options(NamedTuple):
    """The command line."""

    config: str
    nodetach: bool
    debug: str | None
    debugmask: int | None
    speedtest: bool
    say: str | None
    recover: bool
    join: bool


def parse_options() -> Options:
    """Return the options of this process. Exits if they are wrong."""
    result = argparse.ArgumentParser(
        "transactor",
        description="A member of a replicated log: one order of transactions on all members,"
        " as long as a majority runs.",
        allow_abbrev=False,
    )
    add = result.add_argument
    add("--version", action="version", version=f"%(prog)s {__version__}")
    add("-c", "--config", metavar="FILE", required=True, help="use this configuration file")
    add("-nd", "--nodetach", action="store_true", help="remain in the foreground")
    add("-d", "--debug", metavar="FILE", help="write debug information to this file")
    add("-dm", "--debugmask", metavar="VALUE", type=_mask, help="debug flags: 0x… or 0…, 32 bits")
    add("--speedtest", action="store_true", help="allow the command speedtest")
    add = result.add_mutually_exclusive_group().add_argument
    text = "send a command to the admin port of the running transactor, and print the answer"
    add("--say", metavar="COMMAND", help=text)
    text = "the node lost its logs: keep what is whole, learn the rest"
    add("--recover", action="store_true", help=text)
    text = "the node is new in a running cluster, after add_peer"
    add("--join", action="store_true", help=text)
    return Options(**vars(result.parse_args()))


def _mask(text: str) -> int:
    try:
        return parse_mask(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 32 bits") from None
