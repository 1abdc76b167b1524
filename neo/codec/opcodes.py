"""Check the opcodes of a pickle before an unpickler reads it.

The C unpickler only imports what ``find_class`` allows, but it trusts sizes: ``LONG_BINPUT`` with a
large index resizes its memo to that index; ``BYTEARRAY8`` allocates the announced size; hashing a
chain of nested tuples overflows the C stack. An extension code uses a table that the whole process
shares. :func:`vet` refuses the first three and rewrites the fourth. A regular expression selects
records that could have one of these opcodes; only they are walked opcode by opcode.
"""

from __future__ import annotations

import pickletools
import re
from array import array
from collections.abc import Iterator

#: The hash of a tuple takes a frame of the C stack per level (about 200 bytes of 8 MiB).
TUPLE_DEPTH_MAX = 5_000

#: ``POP_MARK`` and opcodes that build from a mark pop the items above it.
_MARK = pickletools.markobject
_BY_CODE = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
_TUPLES = {ord(code): size for code, size in (("\x85", 1), ("\x86", 2), ("\x87", 3))}
_TUPLE_OPCODES = (b"\x85", b"\x86", b"\x87", b"t")
_MEMO_PUTS = {ord("p"), ord("q"), ord("r")}
_MEMO_GETS = {ord("g"), ord("h"), ord("j")}
_EXTENSIONS = {0x82, 0x83, 0x84}
_FRAME = 0x95
_MEMOIZE = 0x94
_STOP = ord(".")
#: Opcodes that change the item below their arguments and leave it on the stack; without arguments
#: (BUILD of None, APPENDS of no items) it stays unchanged.
_KEEP = set(b"bseau\x90")

#: LONG_BINPUT of 65536 and more, PUT of six digits and more (or spaces, underscores: ``int`` takes
#: them), BYTEARRAY8, EXT1, EXT2, EXT4. Text often matches too; then the walk decides.
_SUSPECT = re.compile(rb"r[\0-\xff]{2}(?:[\x01-\xff]|\0[\x01-\xff])|p[^\n]{6}|[\x82-\x84\x96]")

#: Opcodes of text and bytes, and the size of the length before them.
_TEXT_WIDTHS = {**dict.fromkeys(b"UC\x8c\x8a", 1), **dict.fromkeys(b"XB", 4)}
#: Text below this length is matched by the expression: one alternative per length.
_SHORT_TEXT = 256


def _harmless() -> re.Pattern[bytes]:
    """Match a run of opcodes that allocate little, without backtracking.

    Each alternative is one opcode with its whole argument, or two opcodes. So a run ends between
    opcodes.
    """
    sizes: dict[int, bytes] = {}
    for code, opcode in _BY_CODE.items():
        size = 0 if opcode.arg is None else opcode.arg.n
        if 0 <= size <= 8 and code not in {ord("r"), *_EXTENSIONS}:
            sizes[size] = sizes.get(size, b"") + b"\\x%02x" % code
    # Names and texts are put into the memo.
    put = b"(?:q.)?+"
    alternatives = [
        b"[%b]++" % sizes.pop(0),
        *(re.escape(bytes([code])) + _texts(width) + put for code, width in _TEXT_WIDTHS.items()),
        *(b"[%b].{%d}" % (codes, size) for size, codes in sorted(sizes.items())),
        # LONG_BINPUT below 65536 makes a memo of a megabyte at most.
        rb"r..\0\0",
        b"[IFLSVg][^\n]*+\n",
        b"c[^\n]*+\n[^\n]*+\n" + put,
    ]
    return re.compile(b"(?:" + b"|".join(alternatives) + b")*+", re.DOTALL)


def _texts(width: int) -> bytes:
    """Match a length of ``width`` bytes below 256, and as many bytes."""
    lengths = ((size.to_bytes(width, "little"), size) for size in range(_SHORT_TEXT))
    return b"(?:" + b"|".join(re.escape(raw) + b".{%d}" % n for raw, n in lengths) + b")"


_HARMLESS = _harmless()


class MalformedPickle(ValueError):
    """The bytes are no pickle, or one that would exhaust memory or stack."""


def walk(data: bytes, start: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yield ``(opcode, start of its argument, end)`` until the data ends.

    Walks over the STOP of one pickle into the next one: a record of ZODB is two of them.
    Raise :class:`MalformedPickle` at a byte that is no opcode and at an argument that is cut short.
    """
    position, size = start, len(data)
    while position < size:
        code = data[position]
        position += 1
        try:
            end = position + _argument_size(code, data, position)
        except (KeyError, IndexError, ValueError):
            raise MalformedPickle(
                f"byte {position - 1} begins no readable opcode"
            ) from None
        if end > size:
            raise MalformedPickle(f"the argument of byte {position - 1} ends beyond the data")
        yield code, position, end
        position = end


def _argument_size(code: int, data: bytes, position: int) -> int:
    argument = _BY_CODE[code].arg
    if argument is None:
        return 0
    if argument.n >= 0:
        return argument.n
    if argument.n == pickletools.UP_TO_NEWLINE:
        end = data.index(b"\n", position) + 1
        if argument is pickletools.stringnl_noescape_pair:
            end = data.index(b"\n", end) + 1
        return end - position
    width = _LENGTH_WIDTHS[argument.n]
    length = int.from_bytes(
        data[position : position + width],
        "little",
        signed=argument.n == pickletools.TAKEN_FROM_ARGUMENT4,
    )
    if length < 0 or position + width > len(data):
        raise ValueError(length)
    return width + length


_LENGTH_WIDTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}


def vet(data: bytes) -> bytes:
    """Return the pickles of ``data``, safe for an unpickler; usually the same bytes.

    Extension codes become globals of a module ``extension``. Frames, whose lengths would be wrong
    then, are removed. Raise :class:`MalformedPickle` for a pickle that would exhaust memory or stack.
    """
    # A tuple takes at least one byte.
    if len(data) > TUPLE_DEPTH_MAX < sum(map(data.count, _TUPLE_OPCODES)):
        _refuse_deep_tuples(data)
    if _SUSPECT.search(data) is None or _HARMLESS.fullmatch(data) is not None:
        return data
    extended = False
    for code, begin, end in _harmful(data):
        # An entry takes at least two bytes, and picklers number entries from 0.
        if code in _MEMO_PUTS and _memo_index(code, data[begin:end]) > len(data) // 2:
            raise MalformedPickle(
                f"byte {begin - 1} asks for a memo of more entries than the pickle can have"
            )
        extended = extended or code in _EXTENSIONS
    return _without_extensions(data) if extended else data


def _harmful(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield as :func:`walk` does, without harmless opcodes.

    A regular expression skips those; longer text is skipped here.
    """
    position, size = 0, len(data)
    while True:
        # An empty run matches too, so there is always a match.
        position = _HARMLESS.match(data, position).end()  # type: ignore[union-attr]
        if position >= size:
            return
        code = data[position]
        width = _TEXT_WIDTHS.get(code)
        if width is not None:
            begin = position + 1 + width
            position = begin + int.from_bytes(data[position + 1 : begin], "little")
            if position > size or begin > size:
                raise MalformedPickle("a text ends beyond the data")
        else:
            step = next(walk(data, position))
            yield step
            position = step[2]


def _memo_index(code: int, argument: bytes) -> int:
    if code in (ord("p"), ord("g")):
        try:
            return int(argument)
        except ValueError:
            raise MalformedPickle(f"{argument[:20]!r} is no index of the memo") from None
    return int.from_bytes(argument, "little")


def _without_extensions(data: bytes) -> bytes:
    pieces = []
    for code, begin, end in walk(data):
        if code in _EXTENSIONS:
            number = int.from_bytes(data[begin:end], "little")
            pieces.append(b"cextension\n%d\n" % number)
        elif code != _FRAME:
            pieces.append(data[begin - 1 : end])
    return b"".join(pieces)


class _Memo:
    """The depths of tuples in the memo, in two bytes per entry instead of an object."""

    __slots__ = ("_depths", "_size_max", "count")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        #: By index; 0 where there is no entry, else one more than the depth.
        self._depths = array("H")
        self.count = 0

    def put(self, index: int, depth: int) -> None:
        if not 0 <= index < self._size_max:
            raise MalformedPickle(f"the memo has no entry {index}")
        missing = index + 1 - len(self._depths)
        if missing > 0:
            self._depths.frombytes(bytes(missing * self._depths.itemsize))
        self.count += not self._depths[index]
        self._depths[index] = 1 + depth

    def get(self, index: int) -> int:
        known = self._depths[index] if 0 <= index < len(self._depths) else 0
        return max(0, known - 1)


def _refuse_deep_tuples(data: bytes) -> None:
    """Track the depth of tuples for each item on the unpickler's stack; refuse deep ones."""
    stack: list[int] = []
    marks: list[int] = []
    memo = _Memo(len(data))
    try:
        for code, begin, end in walk(data):
            _step(code, data[begin:end], stack, marks, memo)
            if stack and stack[-1] > TUPLE_DEPTH_MAX:
                raise MalformedPickle(f"tuples nest deeper than {TUPLE_DEPTH_MAX:,} levels")
    except IndexError:
        raise MalformedPickle("an opcode takes more items than the stack holds") from None


def _step(code: int, argument: bytes, stack: list[int], marks: list[int], memo: _Memo) -> None:
    opcode = _BY_CODE[code]
    if code == ord("("):
        marks.append(len(stack))
    elif code in _TUPLES or code == ord("t"):
        bottom = len(stack) - _TUPLES[code] if code in _TUPLES else marks.pop()
        if bottom < 0:
            raise IndexError
        items = stack[bottom:]
        del stack[bottom:]
        stack.append(1 + max(items, default=0))
    elif code in _MEMO_PUTS:
        memo.put(_memo_index(code, argument), stack[-1])
    elif code == _MEMOIZE:
        memo.put(memo.count, stack[-1])
    elif code in _MEMO_GETS:
        stack.append(memo.get(_memo_index(code, argument)))
    elif code == ord("2"):
        stack.append(stack[-1])
    elif code == ord("0") and marks and marks[-1] == len(stack):
        marks.pop()
    elif code == _STOP:
        stack.clear()
        marks.clear()
    else:
        takes = opcode.stack_before
        if _MARK in takes:
            del stack[marks.pop() :]
            takes = takes[: takes.index(_MARK)]
        kept = stack[-len(takes)] if code in _KEEP else 0
        if takes:
            del stack[-len(takes) :]
        stack.extend(kept for _ in opcode.stack_after)
