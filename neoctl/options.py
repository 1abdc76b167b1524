"""The options of ``neoctl``, and its help, with the table of verbs."""

from __future__ import annotations

import argparse

from neo import __version__
from neoctl.client import TIMEOUT_SECONDS
from neoctl.settings import ADDRESS_VARIABLE
from neoctl.verbs import VERBS


def make_parser() -> argparse.ArgumentParser:
    """Return the parser, with the table of verbs in its help."""
    width = max(len(found.usage) for found in VERBS.values())
    table = "".join(f"  {found.usage:{width}}  {found.help}\n" for found in VERBS.values())
    parser = argparse.ArgumentParser(
        prog="neoctl",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Administer a NEO cluster.",
        epilog=f"commands:\n{table}\nNodes are written S1, M1, C1, A1; a TID as an integer, 0x..., "
        "or a timestamp\n(seconds since 1970) with a dot.\n\n"
        "Exit codes: 0 done, 1 refused or not possible, or status of a standby that gets nothing,\n"
        "2 wrong options, 3 status found a problem.\n\n"
        "example:\n  neoctl -a 10.0.0.1:2052 status",
    )
    add = parser.add_argument
    add("--version", action="version", version=f"%(prog)s {__version__}")
    add("-a", "--address", metavar="HOST:PORT", help=f"admin node (or {ADDRESS_VARIABLE})")
    add("-f", "--file", help="neo.conf with the section of the admin node")
    add("-s", "--section", help="that section (default: admin, or that of this machine)")
    add("--ca", help="file of the certificate authority; with --cert and --key: use TLS")
    add("--cert", help="file of a certificate")
    add("--key", help="file of its private key")
    add("--json", action="store_true", help="print data instead of text")
    add(
        "--timeout",
        type=_seconds,
        default=TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="of each answer (default: %(default)g)",
    )
    text = "repeat a question each so many seconds, until Ctrl-C"
    add("--watch", type=_seconds, metavar="SECONDS", help=text)
    add("-n", "--dry-run", action="store_true", help="only show what would be done")
    add("--force", action="store_true", help="do it although a disk would be full")
    add("command", nargs="*", help="see below, or: neoctl help VERB")
    return parser


def _seconds(text: str) -> float:
    """Parse a time, at most a day."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, up to 86400")
    return seconds
