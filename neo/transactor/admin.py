"""The commands of operators: state, debugging, membership, termination."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from neo.transactor.debug import ALL, FLAGS, Debug, names_of
from neo.transactor.members import Address, Members, MembershipError, is_host
from neo.transactor.messages import Kind, Refusal, Sid
from neo.transactor.node import Node
from neo.transactor.session import HELP, Session
from neo.transactor.text import DATA_MAX, Command, SyntaxFault, number

#: Names of files that commands may write in the debug folder.
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Daemon(Protocol):
    """What the commands need of the daemon."""

    def terminate(self) -> None: ...

    def debug_file(self, name: str | None) -> None:
        """Write debug messages to a file of the debug folder; None: to the last file, or to stderr.

        Raises OSError if the file cannot be written, or if there was no last file.
        """

    def debug_off(self) -> None: ...

    def dump(self) -> str:
        """Return all details, one per line."""

    def write_dump(self, name: str) -> None:
        """Write all details into a file of the debug folder. Raises OSError."""

    def links(self) -> dict[str, str]:
        """Return the path to each peer, by name."""

    def random_bytes(self, size: int) -> bytes: ...


class Admin:
    def __init__(self, node: Node, daemon: Daemon, debug: Debug, speedtest: bool) -> None:
        self._node = node
        self._daemon = daemon
        self._debug = debug
        self._speedtest_allowed = speedtest
        #: Bytes per transaction of the speed test; None while it is off.
        self._speedtest: int | None = None
        self._commands: dict[str, Callable[[Session, list[bytes]], None]] = {
            "terminate": lambda session, words: self._daemon.terminate(),
            "help": self._help,
            "reset_node": self._reset_node,
            "info": lambda session, words: session.respond("\n".join(self.info())),
            "dump": self._dump,
            "debugdump": self._debugdump,
            "debugfile": self._debugfile,
            "debugmask": self._debugmask,
            "debug": self._debug_switch,
            "speedtest": self._set_speedtest,
            "peers": self._peers,
            "add_peer": lambda s, w: self._change(s, w, lambda m: m.added(_name(w), _address(w))),
            "move_peer": lambda s, w: self._change(s, w, lambda m: m.moved(_name(w), _address(w))),
            "remove_peer": lambda s, w: self._change(s, w, lambda m: m.removed(_name(w))),
        }

    def execute(self, session: Session, command: Command) -> None:
        """Execute a command that :func:`check` accepted. Raises SyntaxFault."""
        try:
            self._commands[command.word](session, command.arguments)
        except MembershipError as e:
            raise SyntaxFault(str(e)) from None
        except OSError as e:
            raise SyntaxFault(": ".join(filter(None, (e.filename, e.strerror)))) from None

    def post(self) -> None:
        """Post the next transaction of the speed test, if it is on. At each tick and decision."""
        engine = self._node.engine
        if self._speedtest is not None and engine.mine is None and not engine.started:
            data = self._daemon.random_bytes(self._speedtest)
            self._node.post(engine.tid, data, lambda result: None)

    def info(self) -> list[str]:
        """Return the state as lines of ``name: value``."""
        engine = self._node.engine
        suspected = ", ".join(self._name(q) for q in sorted(engine.detector.suspected))
        process = engine.process
        role = (
            "learns, does not vote" if engine.learns else "votes" if process else "is not a member"
        )
        return [
            f"node: {engine.name}",
            f"index: {engine.me}",
            f"role: {role}",
            f"members: {', '.join(member.name for member in engine.members.all)}",
            f"suspected: {suspected or 'none'}",
            f"strangers: {', '.join(self._name(q) for q in sorted(engine.peers.strangers)) or 'none'}",
            f"majority alive: {'yes' if engine.majority_alive else 'no'}",
            f"tlog tid: {self._node.tlog_tid}",
            f"current tid: {engine.cluster_tid}",
            f"last sid: {engine.last}",
            f"started: {'yes' if engine.started else 'no'}",
            f"round: {process.round if process else '-'}",
            f"coordinator: {self._name(process.coordinator) if process else '-'}",
            f"estimate: {process.estimate if process else '-'}",
        ]

    def _name(self, q: int) -> str:
        member = self._node.engine.members.at(q)
        return member.name if member else str(q)

    # -- commands ----------------------------------------------------------------------------------

    def _help(self, session: Session, words: list[bytes]) -> None:
        if not words:
            for usage in HELP.values():
                session.respond(usage.text)
        elif (word := words[0].decode("latin1")) in HELP:
            session.respond(HELP[word].text)
        else:
            raise SyntaxFault(f"there is no command {word[:40]!r}; see help")

    def _reset_node(self, session: Session, words: list[bytes]) -> None:
        member = self._node.engine.members.named(_name(words))
        if member is None or member.node == self._node.engine.me:
            raise SyntaxFault(f"{_name(words)} is not a peer of this node")
        self._node.engine.reset(member.node)
        self._node.flush()
        session.respond(f"reset_node {member.name}")

    def _dump(self, session: Session, words: list[bytes]) -> None:
        if words:
            name = _file_name(words)
            self._daemon.write_dump(name)
            session.respond(f"dump {name}")
        else:
            session.respond(self._daemon.dump())

    def _debugdump(self, session: Session, words: list[bytes]) -> None:
        if self._debug.write is None:
            raise SyntaxFault("debugging is off; see debug on")
        self._debug.write(self._daemon.dump())
        session.respond("debugdump")

    def _debugfile(self, session: Session, words: list[bytes]) -> None:
        name = _file_name(words)
        self._daemon.debug_file(name)
        session.respond(f"debugfile {name}")

    def _debugmask(self, session: Session, words: list[bytes]) -> None:
        for word in words:
            text = _text(word)
            if text in ("all", "none"):
                self._debug.mask = ALL if text == "all" else 0
            elif text[:1] in ("+", "-") and text[1:] in FLAGS:
                flag = FLAGS[text[1:]]
                self._debug.mask = self._debug.mask & ~flag | (flag if text[0] == "+" else 0)
            else:
                raise SyntaxFault(
                    f"{text} is not all, none, +FLAG or -FLAG; the flags are {names_of(ALL)}"
                )
        session.respond(f"debugmask 0{self._debug.mask:o} {names_of(self._debug.mask)}")

    def _debug_switch(self, session: Session, words: list[bytes]) -> None:
        if words == [b"on"]:
            self._daemon.debug_file(None)
        elif words == [b"off"]:
            self._daemon.debug_off()
        elif words:
            raise SyntaxFault("write debug on, or debug off")
        session.respond(f"debug {'off' if self._debug.write is None else 'on'}")

    def _set_speedtest(self, session: Session, words: list[bytes]) -> None:
        if not self._speedtest_allowed:
            raise SyntaxFault(
                "the speed test is not allowed: start the transactor with --speedtest"
            )
        size = None if words[0] == b"off" else number(words[0])
        if size is not None and size > DATA_MAX:
            raise SyntaxFault(f"a transaction has at most {DATA_MAX} bytes, not {size}")
        self._speedtest = size
        session.respond(f"speedtest {'off' if self._speedtest is None else self._speedtest}")

    def _peers(self, session: Session, words: list[bytes]) -> None:
        links = self._daemon.links()
        for member in self._node.engine.members.all:
            host, port = member.address
            how = links.get(member.name, "this node")
            session.respond(f"peer {member.node} {member.name} {host} {port} {how}")

    def _change(
        self, session: Session, words: list[bytes], change: Callable[[Members], Members]
    ) -> None:
        """Post a changed list of members, and answer the session with the outcome of the post."""
        engine = self._node.engine
        data = change(engine.members).encode()

        session.unanswered += 1

        def told(result: Sid | Refusal) -> None:
            if isinstance(result, Sid):
                session.respond(f"posted {result} {tid}: see peers for the outcome")
            else:
                session.fail(f"{result}: another transaction is in the way, try again")
            session.answered()

        tid = engine.tid
        self._node.post(tid, data, told, Kind.MEMBERS)


def _text(word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise SyntaxFault("an argument of the command is not UTF-8") from None


def _file_name(words: list[bytes]) -> str:
    """Return the file name. A name with a folder is refused. Raises SyntaxFault."""
    name = _text(words[0])
    if _FILE_NAME.fullmatch(name) is None:
        raise SyntaxFault(
            "a file is written into the debug folder: give a name of letters, digits, '.', '_' and '-'"
        )
    return name


def _name(words: list[bytes]) -> str:
    return _text(words[0])


def _address(words: list[bytes]) -> Address:
    host, port = _text(words[1]), number(words[2], 16)
    if not is_host(host) or not port:
        raise SyntaxFault(f"{host} {port} is not an address: expected a host and a port")
    return host, port
