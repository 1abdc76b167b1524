"""The text protocol, as bytes: lines of words, C-style strings, and data with a length prefix."""

from __future__ import annotations

import hmac
import re
from typing import NamedTuple

from neo.transactor.messages import Sid

#: Maximum length of a line, C-style strings included. Longer data is sent with its size.
LINE_MAX = 1024 * 1024
#: Maximum size of a specification (specification 20.38); some megabytes are practical.
DATA_MAX = 64 * 1024 * 1024
#: Maximum length of a line of an unauthenticated client.
STRANGER_LINE_MAX = 1024
#: The end of an error that is not the client's fault: it may connect again.
LATER = ", try again later"

ESCAPES = {
    **{b"\\": b"\\", b'"': b'"', b"'": b"'", b"a": b"\a", b"b": b"\b"},
    **{b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"},
}
ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.|$)", re.DOTALL)
WORDS = re.compile(rb'\s*(?:"((?:[^"\\]|\\.)*)"(?=\s|$)|([^\s"]+)(?=\s|$))')


class SyntaxFault(Exception):
    """Not a valid command; the message goes to the client."""


class Command(NamedTuple):
    """A word, its arguments, and the data that followed on the next line, if any."""

    word: str
    arguments: list[bytes]
    data: bytes | None


def quote(data: bytes) -> bytes:
    """Return the data as a C-style string."""
    return b'"' + b"".join(_quoted(byte) for byte in data) + b'"'


def _quoted(byte: int) -> bytes:
    if byte in b"\"'\\":
        return b"\\%c" % byte
    return b"%c" % byte if 32 <= byte < 127 else b"\\%03o" % byte


def unquote(text: bytes) -> bytes:
    """Return the content of a C-style string, given without its quotes. Raises SyntaxFault."""

    def value(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        if len(escape) == 3:
            return bytes([int(escape, 8)])
        if escape not in ESCAPES:
            raise SyntaxFault("a backslash in a string begins \\ooo, \\\", \\' or \\\\")
        return ESCAPES[escape]

    return ESCAPE.sub(value, text)


def words(line: bytes) -> list[bytes]:
    """Split a line into words and unquoted strings. Raises SyntaxFault."""
    found: list[bytes] = []
    at = 0
    line = line.strip()
    while at < len(line):
        match = WORDS.match(line, at)
        if match is None:
            raise SyntaxFault("a string is not closed, or stands inside a word")
        found.append(unquote(match[1]) if match[1] is not None else match[2])
        at = match.end()
    return found


def number(word: bytes, bits: int = 64) -> int:
    """Parse an unsigned number. Raises SyntaxFault."""
    if not re.fullmatch(rb"[0-9]{1,20}", word) or int(word) >> bits:
        raise SyntaxFault(f"{word[:40].decode('latin1')} is not a number of {bits} bits")
    return int(word)


def sid(word: bytes) -> Sid:
    """Parse ``node:number``. Raises SyntaxFault."""
    node, colon, rest = word.partition(b":")
    if not colon:
        raise SyntaxFault(
            f"{word[:40].decode('latin1')} is not the id of a specification: write NODE:NUMBER"
        )
    return Sid(number(node, 16), number(rest))


def response(secret: str, challenge: str) -> str:
    """Return the answer to ``challenge`` that proves knowledge of the secret."""
    return hmac.new(secret.encode(), challenge.encode(), "sha256").hexdigest()


class CommandReader:
    """Splits the bytes of a client into commands.

    ``trusted``: accept long lines and data. Of an unauthenticated client only one short line is buffered.
    """

    def __init__(self, trusted: bool = True) -> None:
        self.trusted = trusted
        #: The first word of the last line, also of an invalid one.
        self.word = ""
        self._buffer = bytearray()
        #: The words of a post whose line is read, and the size of its data that is still to come.
        self._pending: tuple[list[bytes], int] | None = None

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Command | None:
        """Return a complete command, or None. Raises SyntaxFault; the invalid line is consumed."""
        while True:
            if self._pending is not None:
                return self._with_data(*self._pending)
            end = self._buffer.find(b"\n")
            line_max = LINE_MAX if self.trusted else STRANGER_LINE_MAX
            if end > line_max or (end < 0 and len(self._buffer) > line_max):
                self.word = ""
                self._buffer.clear()
                raise SyntaxFault(f"the line has more than {line_max} bytes")
            if end < 0:
                return None
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self.word = b"".join(line.split(None, 1)[:1]).decode("latin1")
            quoted = line.rstrip().endswith(b'"')
            found = words(line)
            if not found:
                continue
            word = found[0].decode("latin1")
            if word == "post" and len(found) == 4 and not quoted and self.trusted:
                size = number(found[3])
                if size > DATA_MAX:
                    raise SyntaxFault(f"the data has {size} bytes: at most {DATA_MAX} are possible")
                self._pending = (found, size)
                continue
            return Command(word, found[1:], None)

    def _with_data(self, found: list[bytes], size: int) -> Command | None:
        if len(self._buffer) <= size:
            return None
        data, end = bytes(self._buffer[:size]), self._buffer[size]
        del self._buffer[: size + 1]
        self._pending = None
        if end != 0x0A:
            raise SyntaxFault(f"{size} bytes of data are not followed by a newline")
        return Command("post", found[1:3], data)
