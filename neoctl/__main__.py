"""``neoctl``: the command line of operators.

Exit codes: 0 done, 1 refused or not possible, or ``status`` of a backup that gets nothing from its
upstream cluster, 2 wrong options, 3 ``status`` found a problem.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from neo.protocol.errors import ErrorAnswer
from neoctl import (  # register the verbs
    archives,
    caches,
    commands,
    init,
    manual,
    operations,
    password,
)
from neoctl.client import AdminAway, AdminClient
from neoctl.options import make_parser
from neoctl.settings import SettingError, target
from neoctl.verbs import HINTS, VERBS, Arguments, CommandError, Reply, find, meant

__all__ = ["archives", "caches", "commands", "init", "main", "manual", "operations", "password"]

#: Moves the cursor of a terminal to its upper left corner, and wipes what is below.
WIPE = "\x1b[H\x1b[J"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    parser = make_parser()
    options = parser.parse_intermixed_args(argv)
    if not options.command:
        if options.json:
            _print_json({"error": {"code": "USAGE", "message": "no command is given", "hint": ""}})
            return 2
        parser.print_usage(sys.stderr)
        print("neoctl: what to do? 'neoctl --help' lists the commands", file=sys.stderr)
        return 2
    if options.command[0] == "help":
        return _help(parser, options)
    code = 0
    try:
        while True:
            code = _once(options)
            if options.watch is None:
                return code
            time.sleep(options.watch)
    except KeyboardInterrupt:
        if options.watch is None:
            raise
        return code


def _once(options: argparse.Namespace) -> int:
    """Run the command, print its reply, and return the exit code."""
    try:
        reply = _run(options)
    except ErrorAnswer as e:
        return _refused(options, e.code.name, e.message or e.code.name, HINTS.get(e.message, ""))
    except CommandError as e:
        options.watch = None  # it would be refused each time
        return _refused(options, "COMMAND", str(e), e.hint)
    except (SettingError, AdminAway) as e:
        return _impossible(options, e)
    try:
        if options.watch is not None:
            # On a terminal the screen is wiped when the answer is here, so that it does not flicker.
            print(WIPE if sys.stdout.isatty() else f"-- {time.strftime('%Y-%m-%d %H:%M:%S')}")
        if options.json:
            _print_json({**reply.data, "hint": reply.hint} if reply.hint else reply.data)
        else:
            if reply.text is not None:
                print(reply.text, flush=True)
            if reply.hint:
                print(f"neoctl: {reply.hint}", file=sys.stderr)
    except BrokenPipeError:
        # The reader has closed the pipe (head, grep -q).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        options.watch = None
    return reply.exit_code


def _help(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Print the help of the verbs that begin with these words, or of all. Needs no connection."""
    name = " ".join(options.command[1:])
    found = [each for verb, each in VERBS.items() if f"{verb} ".startswith(f"{name} ")]
    if not name and not options.json:
        parser.print_help()
        return 0
    if not found:
        return _refused(options, "COMMAND", f"invalid command: {name}", meant(options.command[1:]))
    if options.json:
        _print_json({"commands": [{"usage": each.usage, "help": each.help} for each in found]})
        return 0
    for each in found:
        print(f"neoctl {each.usage}: {each.help}")
    return 0


def _run(options: argparse.Namespace) -> Reply:
    found, words = find(options.command)
    for option, given in (("-n", options.dry_run), ("--force", options.force)):
        if given and f"[{option}]" not in found.usage:
            able = [name for name, each in VERBS.items() if f"[{option}]" in each.usage]
            raise CommandError(f"option {option} is of {', '.join(able)} alone")
    if options.watch is not None and found.usage.split()[0] not in ("status", "print"):
        raise CommandError("option --watch is of 'status' and 'print' alone")
    arguments = Arguments(words, options.dry_run, options.force)
    if found.local is not None:
        return found.local(arguments)
    assert found.run is not None
    where = target(options)
    with AdminClient(where.address, where.tls, options.timeout) as admin:
        return found.run(admin, arguments)


def _refused(options: argparse.Namespace, code: str, message: str, hint: str) -> int:
    """Print a refusal: ``message`` to stdout, where scripts expect it, ``hint`` to stderr."""
    if options.json:
        _print_json({"error": {"code": code, "message": message, "hint": hint}})
        return 1
    print(message)
    if hint:
        print(f"neoctl: {hint}", file=sys.stderr)
    return 1


def _impossible(options: argparse.Namespace, error: Exception) -> int:
    """Print that no question was sent, or that no answer came."""
    if options.json:
        _print_json({"error": {"code": type(error).__name__, "message": str(error), "hint": ""}})
    else:
        print(f"neoctl: {error}", file=sys.stderr)
    return 1


def _print_json(data: dict[str, Any]) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
