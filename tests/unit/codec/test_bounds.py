"""A record takes a multiple of its size at most, and no stack, whatever its opcodes are."""

from __future__ import annotations

import os
import pickletools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neo.codec import decode, stubs
from neo.codec.weight import UNWEIGHED_SIZE
from tests.unit.codec.measured import bound, measured

OLD = b"\x80\x03capp\nDoc\n.\x80\x03"
NEW = b"\x80\x04capp\nDoc\n.\x80\x04"


@pytest.mark.parametrize("nothing", [b"Nb", b"(e", b"(u", b"(\x90"])
def test_no_opcodes_reset_the_depth_of_tuples(nothing: bytes) -> None:
    record = NEW + b"}N" + (b"\x85" * 4000 + nothing) * 60 + b"Ns."
    assert len(record) < UNWEIGHED_SIZE
    assert [m.error for m in measured([record])] == ["tuples nest deeper than 5,000 levels"]


def text(content: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(content)) + content


def called(constructor: bytes, times: int) -> bytes:
    """Return opcodes that call a constructor with the value on the stack again and again."""
    return b"q\0c" + constructor + b"\nq\1" + b"h\1h\0\x85R" * times + b"t."


def numbers(count: int) -> bytes:
    return b"".join(b"M" + struct.pack("<H", n) for n in range(count))


#: Records that hold one large thing, and copy it again and again.
COPIES = {
    "arguments of a stub": OLD + b"((" + b"N" * 20_000 + b"tq\0capp\nX\nq\1" + b"h\1h\0R" * 5_000 + b"t.",
    "arguments of a new object": (
        OLD + b"((" + b"N" * 20_000 + b"tq\0capp\nX\nq\1" + b"h\1h\0\x81" * 5_000 + b"t."
    ),
    "keywords of a new object": (
        NEW + b"(}(" + b"".join(b"\x8c\4%04xN" % n for n in range(5_000))
        + b"uq\0capp\nX\nq\1" + b"h\1)h\0\x92" * 5_000 + b"t."
    ),
    "arguments of an old instance": (
        OLD + b"((" + b"N" * 20_000 + b"tq\0capp\nX\nq\1ccopyreg\n__newobj__\nq\2(h\1"
        + b"N" * 20_000 + b"tq\3" + b"h\2h\3R" * 5_000 + b"t."
    ),
    "bytes of a bytearray": (
        b"\x80\x05capp\nDoc\n.\x80\x05(\x96" + struct.pack("<Q", 100_000) + b"a" * 100_000
        + called(b"builtins\nbytes", 5_000)
    ),
    "set of a frozenset": NEW + b"((" + numbers(20_000) + b"\x91" + called(b"builtins\nset", 2_000),
    "set of a list": OLD + b"((" + numbers(20_000) + b"l" + called(b"builtins\nset", 2_000),
    "encoded text": OLD + b"(" + text(b"a" * 100_000) + called(b"_codecs\nencode", 9_000),
    "decimal of text": OLD + b"(" + text(b"1" * 100_000) + called(b"decimal\nDecimal", 9_000),
    "decimal of a tuple": (
        OLD + b"((K\0(" + b"K\1" * 50_000 + b"tK\0t" + called(b"decimal\nDecimal", 10_000)
    ),
    "decimal of an integer": (
        OLD + b"(\x8b" + struct.pack("<i", 1_000) + b"\1" * 1_000 + called(b"decimal\nDecimal", 10_000)
    ),
    "names of classes inside classes": (
        OLD + b"(" + text(b"n" * 200) + b"q\0cbuiltins\ngetattr\nq\1capp\nX\nq\2"
        + b"0h\1h\2h\0\x86Rq\2" * 3_000 + b"t."
    ),
    "classes with a long name": (
        NEW + b"(" + text(b"n" * 50_000) + b"q\0" + b"h\0h\0\x93" * 5_000 + b"t."
    ),
    "classes with short names": (
        OLD + b"(" + b"".join(b"c%x\nC\n" % n for n in range(25_000)) + b"t."
    ),
    "name of a class in references": (
        OLD + b"(C\x08" + bytes(8) + text(b"n" * 50_000) + b"q\0h\0\x86\x86q\1"
        + b"h\1Q" * 5_000 + b"t."
    ),
    "database in references": (
        OLD + b"(]X\1\0\0\0na](" + text("é".encode() * 50_000) + b"C\x08" + bytes(8)
        + b"e\x85q\1000(]q\2(X\1\0\0\0n(" + text("é".encode() * 50_000) + b"C\x08" + bytes(8)
        + b"te" + b"h\2Q" * 5_000 + b"t."
    ),
    "what is no oid, written out": OLD + b"K\1" + b"q\0h\0\x86" * 60 + b"Q.",
    "name of a zone in JSON": (
        OLD + b"(cdatetime\ntimezone\ncdatetime\ntimedelta\n(K\0K\0K\0tR" + text(b"n" * 50_000)
        + b"\x86Rq\0" + b"h\0" * 50_000 + b"t."
    ),
}  # fmt: skip
#: Those whose error is not that they would take far more memory than their size.
OTHER_ERRORS = {
    "decimal of a tuple": "a decimal is made of a value of type tuple",
    "decimal of an integer": "a decimal is made of a value of type int",
    "what is no oid, written out": "a reference whose id is no oid: tuple",
    "name of a zone in JSON": "more text than the budget allows",
}


@pytest.mark.parametrize("name", COPIES)
def test_constructors_and_stubs_are_charged(name: str) -> None:
    record = COPIES[name]
    error = OTHER_ERRORS.get(name, "far more memory than its size")
    assert len(record) < UNWEIGHED_SIZE
    (result,) = measured([record])
    assert result.grown <= bound(record) // 2
    assert error in (result.error or "")


#: Opcodes that are repeated to see what they take, and what comes before them.
FAMILIES = {
    "none": (b"N", b""),
    "marks": (b"(", b""),
    "memo": (b"N\x94", b""),
    "memo by hand": (b"Nr\xff\xff\0\0", b""),
    "popped": (b"N0", b""),
    "duplicates": (b"2", b"N"),
    "lists": (b"]", b""),
    "lists of one": (b"]Na", b""),
    "lists of some": (b"](NNe", b""),
    "lists from marks": (b"(Nl", b""),
    "dictionaries": (b"}", b""),
    "dictionaries of one": (b"}NNs", b""),
    "dictionaries of some": (b"}(NNK\1Nu", b""),
    "dictionaries from marks": (b"(NNd", b""),
    "sets": (b"\x8f", b""),
    "sets of five": (b"\x8f(NK\0K\1K\2K\3\x90", b""),
    "frozen sets": (b"(\x91", b""),
    "frozen sets of five": (b"(NK\0K\1K\2K\3\x91", b""),
    "empty tuples": (b")", b""),
    "tuples": (b"N\x85", b""),
    "tuples from marks": (b"(Nt", b""),
    "small numbers": (b"M\1\2", b""),
    "numbers": (b"J\1\2\3\4", b""),
    "long numbers": (b"\x8a\2\1\2", b""),
    "floating numbers": (b"G\0\0\0\0\0\0\0\0", b""),
    "numbers in decimal": (b"I9999\n", b""),
    "text": (b"\x8c\2ab", b""),
    "bytes": (b"C\2ab", b""),
    "text by line": (b"Vab\n", b""),
    "quoted text": (b"S'ab'\n", b""),
    "bytearrays": (b"\x96\1\0\0\0\0\0\0\0a", b""),
    "frames": (b"\x95\1\0\0\0\0\0\0\0N", b""),
    "globals": (b"capp\nX\n", b""),
    "globals from the stack": (b"h\0h\0\x93", b"\x8c\1aq\0"),
    "extension codes": (b"\x82\1", b""),
    "instances": (b"h\0)R", b"capp\nX\nq\0"),
    "new objects": (b"h\0)\x81", b"capp\nX\nq\0"),
    "new objects with keywords": (b"h\0)}\x92", b"capp\nX\nq\0"),
    "objects from marks": (b"(h\0o", b"capp\nX\nq\0"),
    "instances by name": (b"(iapp\nX\n", b""),
    "states": (b"h\0)\x81Nb", b"capp\nX\nq\0"),
    "pairs of an instance": (b"NNs", b"capp\nX\n)\x81"),
    "items of an instance": (b"Na", b"capp\nX\n)\x81"),
    "empty sets, called": (b"h\0)R", b"cbuiltins\nset\nq\0"),
    "datetimes": (b"h\0h\1R", b"cdatetime\ndatetime\nq\0C\n\x07\xe6\1\1\0\0\0\0\0\0\x85q\1"),
    "references": (b"h\0Q", b"C\x08" + bytes(8) + b"q\0"),
    "references by line": (b"Pabcdefgh\n", b""),
    "instances of what is referred to": (b"h\0Q)\x81", b"C\x08" + bytes(8) + b"q\0"),
    "floating numbers in decimal": (b"F1.5\n", b""),
    "long numbers in decimal": (b"L12345678901234567890L\n", b""),
    "long numbers of four bytes of length": (b"\x8b\2\0\0\0\1\2", b""),
    "text of eight bytes of length": (b"\x8d\2\0\0\0\0\0\0\0ab", b""),
    "bytes of eight bytes of length": (b"\x8e\2\0\0\0\0\0\0\0ab", b""),
    "buffers": (b"\x97", b""),
    "buffers to read": (b"\x98", b"C\2ab"),
    "extension codes of two bytes": (b"\x83\1\1", b""),
    "extension codes of four bytes": (b"\x84\1\1\1\1", b""),
    "marks popped": (b"(NN1", b""),
}


@pytest.mark.parametrize(("size", "turn"), [(UNWEIGHED_SIZE - 100, 0), (600_000, 1)])
def test_each_family_of_opcodes_takes_a_multiple_of_the_size_at_most(size: int, turn: int) -> None:
    """Each family has one of the sizes; with NEO_EVERY_SIZE in the environment, both."""
    names = [*FAMILIES] if "NEO_EVERY_SIZE" in os.environ else [*FAMILIES][turn::2]
    records = []
    for name in names:
        unit, begin = FAMILIES[name]
        records.append(NEW + begin + unit * (size // len(unit)) + b".")
    for name, record, result in zip(names, records, measured(records), strict=True):
        assert result.grown <= bound(record), name
        assert "died" not in (result.error or ""), name


def test_large_records_of_many_small_things_can_be_read() -> None:
    """True ones: rows of a table, and small objects, that a pickler wrote into one record."""
    rows = b"](" + b"}r\1\0\0\0(h\0K\1h\0K\2u" * 100_000 + b"e."
    objects = b"](" + b"h\1)\x81r\2\0\0\0}r\3\0\0\0h\0K\1sb" * 100_000 + b"e."
    begin = OLD + text(b"name") + b"q\x000capp\nRow\nq\x010"
    results = measured([begin + rows, begin + objects])
    # More values than JSON is written of, but no error of the record.
    assert {result.error for result in results} == {
        "the state has more values than the budget allows"
    }


def test_names_of_classes_stay_only_if_they_are_few_and_short() -> None:
    for number in range(stubs.STUB_TYPES_MAX + 5):
        decode(OLD + b"capp\nX%d\n." % number)
    long = "x" * 1_000
    decode(OLD + b"capp\n" + long.encode() + b"\n.")
    assert len(stubs._stub_types) <= stubs.STUB_TYPES_MAX
    assert max(len(name) for _, name in stubs._stub_types) <= stubs.NAME_LENGTH_MAX


OPCODE = st.tuples(st.sampled_from(pickletools.opcodes), st.binary(max_size=4)).map(
    lambda pair: pair[0].code.encode("latin1") + pair[1]
)
PROGRAM = st.tuples(
    st.lists(OPCODE, max_size=8).map(b"".join),
    st.lists(OPCODE, min_size=1, max_size=8).map(b"".join),
).filter(
    # Tuples that share tuples take time to hash; the time is not bounded.
    lambda p: not (set(p[1]) & set(b"2ghj") and set(p[0] + p[1]) & set(b"t\x85\x86\x87"))
)
#: In the memo: a text and a tuple, to be copied.
HELD = b"\x8c\xff" + b"a" * 255 + b"\x94((" + b"N" * 2_000 + b"t\x94"


@settings(max_examples=10, deadline=None)
@given(st.lists(PROGRAM, min_size=20, max_size=20))
def test_any_opcodes_again_and_again_take_a_multiple_of_their_size_at_most(
    programs: list[tuple[bytes, bytes]],
) -> None:
    records = [NEW + HELD + begin + unit * (20_000 // len(unit)) + b"." for begin, unit in programs]
    for record, result in zip(records, measured(records), strict=True):
        assert result.grown <= bound(record) // 2
        assert "died" not in (result.error or "")
