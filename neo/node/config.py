"""Settings of a process, read from ``neo.conf`` and the command line by one table of options.

``neo.conf`` is an INI file with a section per node, and ``[DEFAULT]`` for shared settings. The command
line wins. Names are those that users of NEO already type; the long option is the name in the file with
``-`` for ``_``.
"""

from __future__ import annotations

import argparse
import configparser
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from neo import __version__
from neo.net.sockets import parse_addresses, parse_bind
from neo.node.log import FORMATS
from neo.node.passwords import ENVIRON, VISIBLE, check_private


class ConfigError(Exception):
    """A wrong setting. The message names it and says what is expected. Exit code 2."""


@dataclass(frozen=True)
class Option:
    """One setting. ``parse`` converts its text and raises ValueError. ``flag``: it takes no argument.
    ``secret``: whether a text has a password; such a setting may also be in the environment."""

    name: str
    help: str
    parse: Callable[[str], Any] = str
    default: Any = None
    short: str = ""
    flag: bool = False
    required: bool = False
    command_line_only: bool = False
    secret: Callable[[str], bool] | None = None

    @property
    def variable(self) -> str:
        """Return the name of its environment variable, if it is a secret."""
        return f"NEO_{self.name.upper()}"


def boolean(text: str) -> bool:
    states = configparser.ConfigParser.BOOLEAN_STATES
    if text.lower() not in states:
        raise ValueError(f"{text!r} is not a boolean: write true or false")
    return states[text.lower()]


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def positive(text: str) -> int:
    number = _integer(text)
    if number < 1:
        raise ValueError(f"{text} is not a positive number")
    return number


def natural(text: str) -> int:
    number = _integer(text)
    if number < 0:
        raise ValueError(f"{text} is negative")
    return number


def seconds(text: str) -> float:
    """Parse a time, which may be negative."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ValueError(f"{text!r} is not a number of seconds")
    return number


def threshold(text: str) -> float:
    """Parse a positive time."""
    number = seconds(text)
    if not 0 < number < math.inf:
        raise ValueError(f"{text} is not a positive number of seconds")
    return number


def collector(text: str) -> str:
    """Parse the URL of an OTLP collector. The path is /v1/traces unless another is given."""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"{text!r} is not a URL such as http://127.0.0.1:4318")
    return text if url.path.strip("/") else urlunsplit(url._replace(path="/v1/traces"))


def names(text: str) -> list[str]:
    """Split names that are separated by spaces or commas."""
    return text.replace(",", " ").split()


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        for choice in choices:
            if choice.lower() == text.lower():
                return choice
        raise ValueError(f"{text!r} is none of {', '.join(choices)}")

    return parse


COMMON = (
    Option("cluster", "name of the cluster", short="c", required=True),
    Option(
        "masters",
        "addresses of the masters, host:port, separated by spaces or commas",
        parse_addresses,
        short="m",
        required=True,
    ),
    Option(
        "bind", "address to listen on, host:port; a port alone: on loopback", parse_bind, short="b"
    ),
    Option(
        "dynamic_master_list", "JSON file where masters that appear later are remembered", short="D"
    ),
    Option("logfile", "log to this file instead of stderr", short="l"),
    Option("log_format", "text or json", one_of(*FORMATS), "text"),
    Option(
        "log_level",
        "debug, info, warning or error",
        one_of("debug", "info", "warning", "error"),
        "info",
    ),
    Option(
        "log_slow",
        "seconds: a request that takes longer is a line in the log (default: never)",
        threshold,
    ),
    Option(
        "http",
        "address of /live, /ready, /metrics and the admin node's web page, host:port; a port alone:"
        " on loopback",
        parse_bind,
    ),
    Option("ca", "file of the certificate authority; with cert and key: use TLS"),
    Option("cert", "file of this node's certificate"),
    Option("key", "file of the certificate's private key"),
)

#: Of the roles that take part in commits.
TRACING = Option(
    "tracing",
    "URL of an OpenTelemetry collector, http://host:port, to which spans of traced transactions are"
    " sent; needs the extra [tracing]",
    collector,
)

#: Names of the options of all roles, which may stand in [DEFAULT].
KNOWN: set[str] = {option.name for option in COMMON}


def role_options(*options: Option) -> tuple[Option, ...]:
    """Return the common options and the role's own."""
    KNOWN.update(option.name for option in options)
    return COMMON + options


#: Options of roles that this process does not import, which may stand in [DEFAULT] as well.
KNOWN.update(
    "autostart election_log scrub_days upstream_cluster upstream_masters sync sync_backups sync_timeout "
    "sync_policy replicas partitions nid adapter tracing "
    "database mark engine wait dedup disable_drop_partitions devpath reset new_nid monitor_maxlag "
    "monitor_backup smtp smtp_from smtp_to smtp_tls smtp_login http_passwords".split()
)


def load(
    role: str,
    description: str,
    options: Sequence[Option],
    argv: Sequence[str],
    environ: Mapping[str, str] = ENVIRON,
) -> argparse.Namespace:
    """Return all settings of one process by name. Raises ConfigError."""
    arguments = vars(_parser(role, description, options).parse_args(argv))
    if arguments["section"] and not arguments["file"]:
        raise ConfigError("--section chooses a part of a configuration file: give it with --file")
    texts = _texts(arguments["file"], arguments["section"] or role, options)
    if arguments["file"]:
        _check_private(arguments["file"], texts, options)
    for option in options:
        if arguments.get(option.name) is not None:
            texts[option.name] = arguments[option.name]
        elif option.secret and option.name not in texts and option.variable in environ:
            texts[option.name] = environ[option.variable]
    settings = argparse.Namespace()
    for option in options:
        setattr(settings, option.name, _value(option, texts.get(option.name)))
    _check_tls(settings)
    return settings


def _parser(role: str, description: str, options: Sequence[Option]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"neo{role}", description=description)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("-f", "--file", help="configuration file, such as neo.conf")
    parser.add_argument("-s", "--section", help=f"section of the file (default: {role})")
    for option in options:
        names = [f"-{option.short}"] if option.short else []
        names.append(f"--{option.name.replace('_', '-')}")
        if option.flag:
            parser.add_argument(*names, action="store_const", const="true", help=option.help)
        else:
            text = option.help
            if option.secret:
                text = f"{text}. {VISIBLE}: write it into the file, or into {option.variable}"
            parser.add_argument(*names, metavar=option.name.upper(), help=text)
    return parser


def read_file(path: str | Path) -> configparser.ConfigParser:
    """Read an INI file. Raises ConfigError."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        with open(path) as file:
            parser.read_file(file)
    except OSError as e:
        raise ConfigError(f"configuration file {str(path)!r} cannot be read: {e.strerror}") from None
    except (configparser.Error, UnicodeDecodeError) as e:
        raise ConfigError(f"configuration file {str(path)!r}: {e}") from None
    return parser


def read_section(path: str, section: str, advice: str) -> configparser.SectionProxy:
    """Read one section, including the values of [DEFAULT]. ``advice``: what to do if there is none.

    Raises ConfigError.
    """
    parser = read_file(path)
    if not parser.has_section(section):
        raise ConfigError(
            f"configuration file {path!r} has no section [{section}]; "
            f"it has {', '.join(parser.sections()) or 'none'}: {advice}"
        )
    return parser[section]


def _texts(path: str | None, section: str, options: Sequence[Option]) -> dict[str, str]:
    if path is None:
        return {}
    found = read_section(path, section, "choose one with --section")
    own = {option.name for option in options if not option.command_line_only}
    defaults = found.parser.defaults()
    for name in found:
        if name not in own and not (name in defaults and name in KNOWN):
            raise ConfigError(f"{path!r}, section [{section}]: unknown setting {name!r}")
    return {name: value for name, value in found.items() if name in own}


def _check_private(path: str, texts: Mapping[str, str], options: Sequence[Option]) -> None:
    """Raise ConfigError if the file has a password that other users can read."""
    found = [each.name for each in options if each.secret and each.secret(texts.get(each.name, ""))]
    if not found:
        return
    try:
        check_private(path, f"configuration file {path!r} has a password (setting {found[0]!r})")
    except OSError as e:
        raise ConfigError(f"configuration file {path!r} cannot be read: {e.strerror}") from None
    except ValueError as e:
        raise ConfigError(str(e)) from None


def _value(option: Option, text: str | None) -> Any:
    if text is None or not text.strip():
        if option.required:
            raise ConfigError(f"setting {option.name!r} is missing: {option.help}")
        return option.default
    try:
        return (boolean if option.flag else option.parse)(text.strip())
    except ValueError as e:
        raise ConfigError(f"setting {option.name!r}: {e}") from None


def _check_tls(settings: argparse.Namespace) -> None:
    given = [name for name in ("ca", "cert", "key") if getattr(settings, name, None)]
    if given and len(given) < 3:
        raise ConfigError(f"TLS needs all of ca, cert and key: only {' and '.join(given)} is given")
