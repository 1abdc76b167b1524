"""The table of verbs, and the parsers of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from neo.protocol.enums import ClusterState, NodeType
from neo.protocol.ids import parse_nid, parse_tid, parse_xid
from neoctl.client import AdminClient

#: Similarity from which a verb is suggested.
MEANT_RATIO = 0.7
#: Digits of a number in a message, which has 64 bits.
MOST_DIGITS = 18

#: Advice by refusal of the master. It goes to stderr, because scripts parse the refusal on stdout.
HINTS = {
    "unknown node": "'neoctl print node' lists the nodes",
    "a running node must be stopped before removal": "stop its process, or: neoctl kill NODE",
    "can not kill primary master node": (
        "stop the cluster: neoctl set cluster stopping; or another master takes over: neoctl set primary"
    ),
    "Can not switch to this state": "'neoctl status' tells the state it is in",
    "Invalid state requested": "write verifying, stopping, starting_backup or stopping_backup",
    "Not connected to a primary master.": "is a master running? See the log of the admin node",
}

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


class CommandError(Exception):
    """Invalid arguments. ``hint``: what to do; scripts parse the message alone."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Reply(NamedTuple):
    """``text``: for operators and scripts, None for no output. ``data``: for ``--json``. ``hint``: an
    addition on stderr."""

    text: str | None
    data: dict[str, Any]
    exit_code: int = 0
    hint: str = ""


class Arguments(NamedTuple):
    """The words after the verb. ``dry_run``: option ``-n``. ``force``: option ``--force``."""

    words: list[str]
    dry_run: bool
    force: bool = False


Run = Callable[[AdminClient, Arguments], Reply]
#: The function of a verb that needs no cluster.
LocalRun = Callable[[Arguments], Reply]


class Verb(NamedTuple):
    """``least`` and ``most``: numbers of arguments; None for no limit. ``[-n]`` in the usage: the verb
    can show what it would do."""

    usage: str
    help: str
    least: int
    most: int | None
    run: Run | None
    local: LocalRun | None = None


#: By name: ``print ids``, ``tweak``. In the order of the help.
VERBS: dict[str, Verb] = {}


def verb(usage: str, help: str, least: int = 0, most: int | None = 0) -> Callable[[Run], Run]:
    """Register a function. Its name on the command line is the lower-case beginning of ``usage``."""

    def register(run: Run) -> Run:
        VERBS[_name(usage)] = Verb(usage, help, least, most, run)
        return run

    return register


def local_verb(
    usage: str, help: str, least: int = 0, most: int | None = 0
) -> Callable[[LocalRun], LocalRun]:
    """Register a function that needs no cluster."""

    def register(run: LocalRun) -> LocalRun:
        VERBS[_name(usage)] = Verb(usage, help, least, most, None, run)
        return run

    return register


def _name(usage: str) -> str:
    words = usage.split()
    return " ".join(words[:2] if words[0] in ("print", "set") else words[:1])


def find(words: list[str]) -> tuple[Verb, list[str]]:
    """Return the verb and its arguments. Raises CommandError."""
    for length in (2, 1):
        found = VERBS.get(" ".join(words[:length])) if len(words) >= length else None
        if found is not None:
            rest = words[length:]
            if len(rest) < found.least or (found.most is not None and len(rest) > found.most):
                raise CommandError(f"wrong number of arguments, write: neoctl {found.usage}")
            return found, rest
    raise CommandError(f"invalid command: {' '.join(words)}", meant(words))


def meant(words: list[str]) -> str:
    """Return a hint for words that are not a verb."""
    if len(words) == 1 and (group := [name for name in VERBS if name.startswith(f"{words[0]} ")]):
        return f"write one of: {', '.join(group)}"
    for typed in (" ".join(words[:2]), words[0]):
        if close := get_close_matches(typed, VERBS, 1, MEANT_RATIO):
            return f"did you mean 'neoctl {close[0]}'? 'neoctl --help' lists the commands"
    return "'neoctl --help' lists the commands"


# -- arguments -----------------------------------------------------------------------------------


def nid(text: str) -> int:
    return _read(text, parse_nid)


def nids(words: list[str]) -> list[int]:
    return [nid(word) for word in words]


def cell(text: str) -> tuple[int | None, int | None]:
    """Parse ``[PARTITION]:[NODE]``. Return None for an omitted part."""
    partition, colon, node = text.partition(":")
    if not colon:
        raise CommandError(f"{text!r} is not PARTITION:NODE, PARTITION: or :NODE")
    return natural(partition) if partition else None, nid(node) if node else None


def tid(text: str) -> bytes:
    try:
        return parse_tid(text)
    except (ValueError, OverflowError):
        raise CommandError(
            f"{text!r} is not a TID: write an integer, 0x..., or a timestamp with a dot "
            "(seconds since 1970, such as 1795171507.0)"
        ) from None


def xid(text: str) -> bytes:
    return _read(text, parse_xid)


def natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise CommandError(f"{text!r} is not a number")
    if len(text) > MOST_DIGITS:
        raise CommandError(f"a number of {len(text)} digits is too big")
    return int(text)


def switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise CommandError(f"{text!r} is neither on nor off")
    return text == "on"


def cluster_state(text: str) -> ClusterState:
    return _member(text, ClusterState)


def node_type(text: str) -> NodeType:
    return _member(text, NodeType)


def _member(text: str, enum: type[E]) -> E:
    try:
        return enum[text.upper()]
    except KeyError:
        names = ", ".join(item.name.lower() for item in enum)
        raise CommandError(f"{text!r} is none of {names}") from None


def _read(text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as e:
        raise CommandError(str(e)) from None
