"""Whatever the bytes are: nothing is imported, nothing runs, memory and stack stay bounded."""

from __future__ import annotations

import os
import pickle
import pickletools
import re
import resource
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neo.codec import Budget, BudgetExceeded, class_of, decode, state_json
from neo.codec.opcodes import MalformedPickle, vet, walk

META = b"\x80\x03capp\nDoc\n."


def error_of(state: bytes, meta: bytes = META) -> str:
    error = decode(meta + state).error
    assert error is not None
    return error


def mark_file(folder: Path) -> tuple[str, bytes]:
    path = folder / "ran"
    return str(path), f"touch {path}".encode()


@pytest.mark.parametrize("module", ["os", "posix", "nt", "subprocess", "builtins", "__builtin__"])
@pytest.mark.parametrize("name", ["system", "popen", "call", "eval", "exec", "__import__", "open"])
def test_os_system_in_every_disguise(tmp_path: Path, module: str, name: str) -> None:
    path, command = mark_file(tmp_path)
    target = f"c{module}\n{name}\n".encode()
    short = b"\x8c" + bytes([len(module)]) + module.encode()
    short += b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93"
    text = b"X" + struct.pack("<I", len(command)) + command
    for state in (
        target + b"(" + text + b"tR.",  # REDUCE
        b"(" + text + f"i{module}\n{name}\n.".encode(),  # INST
        b"(" + target + text + b"o.",  # OBJ
        b"\x80\x02" + target + text + b"\x85\x81.",  # NEWOBJ
        b"\x80\x04" + short + text + b"\x85}\x92.",  # NEWOBJ_EX
        b"\x80\x04" + short + text + b"\x85R.",  # STACK_GLOBAL
        target + b"(" + text + b"tR" + text + b"b.",  # and BUILD
        b"cbuiltins\ngetattr\n(c" + module.encode() + b"\n__dict__\nV" + name.encode() + b"\ntR.",
        b"ccopyreg\n_reconstructor\n(" + target + b"cbuiltins\nobject\nNtR.",
    ):
        for meta in (META, b"\x80\x04capp\nDoc\n.", b"capp\nDoc\n.", b""):
            read = decode(meta + state)
            class_of(meta + state)
            if read.error is None:
                state_json(read)
    assert not os.path.exists(path)


def test_no_module_is_imported() -> None:
    program = (
        "import sys; from neo.codec import decode, state_json; before = set(sys.modules);"
        "read = decode(b'\\x80\\x03cantigravity\\nThing\\n.\\x80\\x03cthis\\nzen\\n)\\x81.');"
        "assert read.class_name == 'antigravity.Thing', read; state_json(read);"
        "assert set(sys.modules) == before, set(sys.modules) - before"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize(
    "index",
    [b"r" + struct.pack("<I", n) for n in (1 << 17, 1 << 27, (1 << 31) - 1, (1 << 32) - 1)]
    + [b"p134217728\n", b"p 1000000000\n", b"p1_000_000_000\n", b"p-5\n", b"pxxxxxxx\n"],
)
def test_a_memo_bomb_is_refused(index: bytes) -> None:
    assert "memo" in error_of(b"N" + index + b".") or b"-5" in index


@pytest.mark.parametrize(
    "state",
    [
        b"cbuiltins\nbytearray\n(I10000000000\ntR.",
        b"cbuiltins\nbytes\n(I10000000000\ntR.",
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b".",
        b"\x80\x04\x8d" + struct.pack("<Q", (1 << 63) - 1) + b".",
        b"T" + struct.pack("<i", -5) + b".",
        b"B" + struct.pack("<I", (1 << 32) - 1) + b".",
        b"\x8b" + struct.pack("<i", (1 << 31) - 1) + b".",
    ],
)
def test_announced_lengths_allocate_nothing(state: bytes) -> None:
    meta = b"\x80\x05capp\nDoc\n." if state[:1] == b"\x80" else META
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error_of(state, meta)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 65_536  # KiB


def test_tuples_that_would_overflow_the_stack_when_hashed_are_refused() -> None:
    deep = b"\x80\x02}N" + b"\x85" * 200_000 + b"Ns."
    assert "nest deeper" in error_of(deep)
    assert "nest deeper" in error_of(b"\x80\x02}N" + b"K\1\x86" * 80_000 + b"Ns.")
    assert "nest deeper" in error_of(b"\x80\x02}N" + b"\x85q\0h\0h\0\x87" * 30_000 + b"Ns.")
    assert "nest deeper" in error_of(b"}" + b"(" * 100_000 + b"t" * 100_000 + b"Ns.")


def test_many_tuples_side_by_side_are_no_bomb() -> None:
    read = decode(META + pickle.dumps([(n, (n,)) for n in range(20_000)], 3))
    assert read.error is None
    assert isinstance(read.state, list)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [(b"]", b"a"), (b"}N", b"s"), (b"(", b"l"), (b"\x8f(", b"\x90")],
    ids=["lists", "dictionaries", "lists from marks", "sets"],
)
def test_deep_structures_exceed_the_budget_and_hurt_nobody(opening: bytes, closing: bytes) -> None:
    depth = 200_000
    innermost = {b"]": b"]", b"}N": b"N"}.get(opening, b"")
    state = b"\x80\x04" + opening * depth + innermost + closing * depth + b"."
    read = decode(b"\x80\x04capp\nDoc\n." + state)
    if read.error is None:
        with pytest.raises(BudgetExceeded):
            state_json(read)


def shared(depth: int) -> list[object]:
    """Return lists that contain each other: each twice in the next one."""
    laughs: list[object] = ["ha"]
    for _ in range(depth):
        laughs = [laughs, laughs]
    return laughs


def circle() -> list[object]:
    inside: list[object] = []
    inside.append(inside)
    return inside


@pytest.mark.parametrize(
    ("value", "error"),
    [
        pytest.param(shared(40), "more values", id="shared parts written out"),
        pytest.param(["x" * 100_000] * 10_000, "more text", id="one long text many times"),
        pytest.param(circle(), "circle", id="a circle"),
    ],
)
def test_small_records_of_large_states_exceed_the_budget(value: object, error: str) -> None:
    with pytest.raises(BudgetExceeded, match=error):
        state_json(decode(META + pickle.dumps(value, 3)))


@pytest.mark.parametrize("item", [b"h\1h\0\x86Q", b"h\0", b"h\0)\x81"])
def test_one_long_name_many_times_exceeds_the_budget(item: bytes) -> None:
    name = b"c" + b"a" * 100_000 + b"\nC\nq\0"
    state = b"\x80\x03](" + name + b"C\x08" + bytes(8) + b"q\1" + item * 1_000 + b"e."
    with pytest.raises(BudgetExceeded, match="more text"):
        state_json(decode(META + state))


@pytest.mark.parametrize("size", [0, 1, 254, 255, 256, 257, 70_000])
def test_a_memo_bomb_behind_text_of_any_length_is_refused_and_in_text_it_is_text(size: int) -> None:
    bomb = b"r" + struct.pack("<I", 1 << 30)
    text = (b"x" * size + bomb)[:size].replace(b"\0", b"@")
    assert "memo" in error_of(b"X" + struct.pack("<I", size) + text + bomb + b".")
    if size < 256:
        assert "memo" in error_of(b"\x80\x03C" + bytes([size]) + text + bomb + b".")
    read = decode(META + b"\x80\x03B" + struct.pack("<I", size + 5) + text + bomb + b"q\0.")
    assert (read.error, read.state) == (None, text + bomb)


def test_a_budget_of_the_caller_counts() -> None:
    read = decode(META + pickle.dumps([1] * 50, 3))
    assert state_json(read, Budget(nodes=51)) is not None
    with pytest.raises(BudgetExceeded):
        state_json(read, Budget(nodes=50))


def test_build_cannot_change_what_the_next_record_meets() -> None:
    for target in (
        b"cdatetime\ndatetime\n",
        b"cbuiltins\nset\n",
        b"cbuiltins\ngetattr\n",
        b"capp\nDoc\n",
    ):
        for state in (b"}V__call__\nNs", b"N}V__defaults__\nNs\x86", b"N}V_make\nNs\x86"):
            decode(META + b"\x80\x02" + target + state + b"b.")
    assert decode(META + pickle.dumps({1, 2}, 3)).state == {1, 2}
    stub = decode(META + b"\x80\x02capp\nDoc\n)\x81.").state
    assert type(stub).__name__ == "StubOf"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "truncated|Ran out|EOF"),
        (META, "no state"),
        (META + b"\x80\x03}", "Ran out|truncated|EOF|exhausted"),
        (META[:-1], "Ran out|truncated|EOF|exhausted"),
        (b"N.N.", "no class"),
        (META + b"\x80\x03I1\nQ.", "no oid"),
        (META + b"\x80\x03C\x03abcQ.", "no oid"),
        (b"\xff\xfe" * 50, "."),
        (META + b"\x80\x09N.", "protocol"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(data: bytes, error: str) -> None:
    read = decode(data)
    assert read.error is not None
    assert len(read.error) <= 200
    assert re.search(error, read.error), read.error


def test_a_class_is_known_even_when_the_state_cannot_be_read() -> None:
    assert decode(META + b"\x80\x03I").class_name == "app.Doc"


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    for prefix in (b"", META, META + b"\x80\x03", b"\x80\x04capp\nDoc\n.\x80\x04"):
        read = decode(prefix + data)
        class_of(prefix + data)
        if read.error is None:
            try:
                state_json(read)
            except BudgetExceeded:
                assert len(data) > 3


OPCODES = st.sampled_from(pickletools.opcodes)


@given(st.lists(st.tuples(OPCODES, st.binary(max_size=6)), max_size=40))
def test_any_opcodes(program: list[tuple[pickletools.OpcodeInfo, bytes]]) -> None:
    state = b"".join(op.code.encode("latin1") + argument for op, argument in program)
    for meta in (META, b"\x80\x04capp\nDoc\n.\x80\x04", b"capp\nDoc\n."):
        read = decode(meta + state + b".")
        if read.error is None:
            state_json(read)


@given(st.recursive(st.integers() | st.text() | st.binary() | st.none(), st.lists, max_leaves=30))
def test_walk_sees_what_pickletools_sees(value: object) -> None:
    for protocol in range(6):
        data = pickle.dumps(value, protocol)
        seen = [(bytes([code]).decode("latin1"), start - 1) for code, start, _ in walk(data)]
        assert seen == [(op.code, position) for op, _, position in pickletools.genops(data)]


def test_walk_refuses_what_is_cut_or_unknown() -> None:
    for data in (b"\xfe", b"K", b"X\x05\0\0\0abc", b"X\x05\0", b"cmodule\nname", b"V"):
        with pytest.raises(MalformedPickle):
            list(walk(data))


def test_a_record_without_anything_suspicious_is_passed_on_as_it_is() -> None:
    data = META + pickle.dumps({"n": 1}, 3)
    assert vet(data) is data


LONE = b"X\x03\0\0\0\xed\xa0\x80"
CLASS = b"\x80\x03cm\nC\n."


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x03" + LONE + b"X\x01\0\0\0C\x86N\x86.\x80\x03N.",
        CLASS + b"\x80\x03](X\x01\0\0\0m(" + LONE + b"C\x08" + bytes(8) + b"NteQ.",
        CLASS + b"\x80\x03](X\x01\0\0\0n(" + LONE + b"C\x08" + bytes(8) + b"teQ.",
        CLASS + b"\x80\x03](X\x01\0\0\0w(C\x08" + bytes(8) + LONE + b"teQ.",
        CLASS + b"\x80\x03](" + LONE + b"eQ.",
    ],
    ids=["class", "database", "database without class", "database of a weak one", "error"],
)
def test_all_text_can_be_stored(data: bytes) -> None:
    record = decode(data)
    texts = [record.class_name, record.error, class_of(data)]
    for reference in record.references:
        texts += [reference.class_name, reference.database]
    assert any("\\ud800" in (text or "") for text in texts)
    for text in texts:
        (text or "").encode()


@pytest.mark.parametrize("oid", [1 << 63, (1 << 64) - 1])
def test_a_reference_beyond_all_oids_is_an_error_of_the_record(oid: int) -> None:
    record = decode(CLASS + b"\x80\x03C\x08" + oid.to_bytes(8, "big") + b"Q.")
    assert "no oid" in (record.error or "")
    assert record.references == []
