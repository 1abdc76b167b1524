"""A ZODB record → class, references, state: every form that picklers write."""

from __future__ import annotations

import copyreg
import datetime
import decimal
import json
import pickle
import struct
import uuid
import zoneinfo
from collections.abc import Callable
from io import BytesIO
from typing import Any

import persistent
import persistent.mapping
import pytest
import ZODB
from BTrees.IOBTree import IOBTree
from BTrees.OOBTree import OOBTree, OOTreeSet
from hypothesis import given
from hypothesis import strategies as st
from persistent.wref import WeakRef
from ZODB.MappingStorage import MappingStorage
from ZODB.persistentclass import PersistentMetaClass
from ZODB.utils import p64, u64

from neo.codec import Reference, class_of, decode, state_json

OID = bytes(7) + b"\x2a"


class Thing(persistent.Persistent):
    """Pickled by reference to its class, as any class of an application."""

    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


class WithArguments(Thing):
    def __new__(cls, *args: object) -> WithArguments:
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[object, ...]:
        return ("one", 2)


class Outer:
    class Inner:
        pass


def record(state: object, protocol: int = 3) -> bytes:
    """A record of class ``app.models.Doc`` in a protocol of pickle."""
    meta = b"capp.models\nDoc\n."
    return (b"" if protocol < 2 else bytes([0x80, protocol])) + meta + pickle.dumps(state, protocol)


class Stored:
    """A database in memory, with the records that ZODB itself writes."""

    def __init__(self) -> None:
        self.storage = MappingStorage()
        self.db = ZODB.DB(self.storage, database_name="main")

    def record_of(self, thing: Any) -> bytes:
        with self.db.transaction() as connection:
            connection.root()["thing"] = thing
        oid = thing._p_oid
        return bytes(self.storage.load(oid)[0])


def test_a_record_of_zodb_itself() -> None:
    stored = Stored()
    other = Thing(name="other")
    data = stored.record_of(Thing(other=other, number=7))
    read = decode(data)
    assert read.error is None
    assert read.class_name == f"{__name__}.Thing"
    assert read.references == [Reference("s", u64(other._p_oid), f"{__name__}.Thing", None)]
    assert state_json(read) == (
        f'{{"other":{{"$ref":{u64(other._p_oid)},"class":"{__name__}.Thing"}},"number":7}}'
    )


def test_arguments_of_new_come_with_the_class() -> None:
    assert decode(Stored().record_of(WithArguments())).class_name == f"{__name__}.WithArguments"


def test_instances_of_a_class_that_is_a_persistent_object() -> None:
    class Stateless(metaclass=PersistentMetaClass):
        pass

    Stateless.__module__ = "__zodb__"
    stored, other = Stored(), Thing()
    with stored.db.transaction() as connection:
        root = connection.root()
        root["class"], root["other"] = Stateless, other
    instance = Stateless()
    instance.other = other  # type: ignore[attr-defined]
    found = decode(stored.record_of(Thing(a=instance, b=Stateless)))
    oid = u64(Stateless._p_oid)
    assert found.error is None
    inside = f'{{"other":{{"$ref":{u64(other._p_oid)},"class":"{Thing.__module__}.Thing"}}}}'
    expected = f'{{"a":{{"$class":"persistent:{oid:016x}","state":{inside}}},"b":{{"$ref":{oid}}}}}'
    assert state_json(found) == expected
    assert {r.oid for r in found.references} == {oid, u64(other._p_oid)}


@pytest.mark.parametrize("protocol", [1, 2, 3, 4])
def test_a_class_that_is_a_persistent_object_is_called(protocol: int) -> None:
    """By all that makes instances of classes; one in another database, too."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing: object) -> object:
            if thing is Outer.Inner:
                return ["n", ("other", OID)]
            return OID if thing is Outer else None

    file = BytesIO()
    state = {"a": Outer(), "b": Outer.Inner(), "c": Outer}
    file.write((b"" if protocol < 2 else bytes([0x80, protocol])) + b"capp\nDoc\n.")
    Pickler(file, protocol).dump(state)
    found = decode(file.getvalue())
    assert found.error is None
    text = state_json(found)
    assert text is not None
    state = json.loads(text)
    assert state["a"]["$class"] == state["b"]["$class"] == "persistent:000000000000002a"
    assert state["c"] == {"$ref": 42}


def test_weak_references() -> None:
    stored = Stored()
    target = Thing()
    stored.record_of(target)
    with stored.db.transaction() as connection:
        connection.root()["holder"] = holder = Thing(link=WeakRef(target))
    read = decode(bytes(stored.storage.load(holder._p_oid)[0]))
    assert read.references == [Reference("w", u64(target._p_oid), None, None)]


def test_references_into_another_database() -> None:
    databases: dict[str, ZODB.DB] = {}
    here, there = (
        ZODB.DB(MappingStorage(), databases=databases, database_name=name)
        for name in ("here", "there")
    )
    with here.transaction() as connection:
        target = Thing()
        connection.get_connection("there").root()["target"] = target
        connection.get_connection("there").add(target)
        connection.root()["link"] = target
    read = decode(bytes(here.storage.load(p64(0))[0]))
    assert [(r.kind, r.database) for r in read.references] == [("m", "there")]
    there.close()


@pytest.mark.parametrize(
    ("pid", "reference"),
    [
        ((OID, None), Reference("s", 42, None, None)),
        (OID, Reference("s", 42, None, None)),
        ((OID, ("app", "Doc")), Reference("s", 42, "app.Doc", None)),
        ([OID], Reference("w", 42, None, None)),
        (["w", (OID,)], Reference("w", 42, None, None)),
        (["w", (OID, "other")], Reference("w", 42, None, "other")),
        (["n", ("other", OID)], Reference("m", 42, None, "other")),
        (["m", ("other", OID, None)], Reference("m", 42, None, "other")),
    ],
)
def test_every_form_of_a_persistent_id(pid: object, reference: Reference) -> None:
    class Pickler(pickle.Pickler):
        def persistent_id(self, value: object) -> object:
            return pid if value is Thing else None

    for protocol in range(1, 6):
        written = BytesIO()
        Pickler(written, protocol).dump([Thing])
        read = decode(
            record(None, protocol)[: -len(pickle.dumps(None, protocol))] + written.getvalue()
        )
        assert (read.error, read.references) == (None, [reference])


def test_oids_written_by_python_2_are_text_where_they_look_like_it() -> None:
    state = b"\x80\x02U\x08" + OID + b"Q."
    assert decode(b"\x80\x02capp\nDoc\n." + state).references == [Reference("s", 42, None, None)]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"a": [1, 2.5, None, True]}, '{"a":[1,2.5,null,true]}'),
        ({"u": "ü€𐍈"}, '{"u":"\\u00fc\\u20ac\\ud800\\udf48"}'),
        ({"b": b"\0\xff"}, '{"b":{"$bytes":"AP8="}}'),
        ({"b": bytearray(b"ab")}, '{"b":{"$bytes":"YWI="}}'),
        ({1: "x"}, '{"$map":[[1,"x"]]}'),
        ({"$ref": 1}, '{"$map":[["$ref",1]]}'),
        ({"s": {3, 1, 2}}, '{"s":{"$set":[1,2,3]}}'),
        ({"s": frozenset("a")}, '{"s":{"$set":["a"]}}'),
        ({"i": 2**63 - 1}, '{"i":9223372036854775807}'),
        ({"i": 2**63}, '{"i":{"$int":"9223372036854775808"}}'),
        ({"i": -(2**80)}, '{"i":{"$int":"-1208925819614629174706176"}}'),
        ({"f": float("nan")}, '{"f":{"$float":"nan"}}'),
        ({"f": float("-inf")}, '{"f":{"$float":"-inf"}}'),
        ({"d": decimal.Decimal("1.50")}, '{"d":{"$decimal":"1.50"}}'),
        ({"c": 1 + 2j}, '{"c":{"$complex":"(1+2j)"}}'),
        ({"t": (1, ())}, '{"t":[1,[]]}'),
        ({"d": datetime.date(2026, 1, 2)}, '{"d":{"$date":"2026-01-02"}}'),
        ({"d": datetime.timedelta(hours=1)}, '{"d":{"$timedelta":3600.0}}'),
        ({"d": datetime.time(1, 2)}, '{"d":{"$time":"01:02:00"}}'),
        (
            {"d": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)},
            '{"d":{"$datetime":"2026-01-02T00:00:00+00:00"}}',
        ),
        (
            {"d": datetime.datetime(2026, 1, 2, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"))},
            '{"d":{"$datetime":"2026-01-02T00:00:00","zone":"Europe/Paris"}}',
        ),
        ({"c": Outer.Inner}, f'{{"c":{{"$class":"{__name__}.Outer.Inner"}}}}'),
        ("\ud800", '{"$str":"\\\\ud800"}'),
        (None, "null"),
    ],
    ids=repr,
)
def test_values_of_every_protocol(protocol: int, state: object, text: str) -> None:
    read = decode(record(state, protocol))
    assert (read.error, read.class_name) == (None, "app.models.Doc")
    assert state_json(read) == text


_FINITE = st.floats(allow_nan=False, allow_infinity=False)
_LEAVES = st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | _FINITE | st.text()
_NAMES = st.text().filter(lambda name: name[:1] != "$")


@given(st.recursive(_LEAVES, lambda values: st.lists(values) | st.dictionaries(_NAMES, values)))
def test_what_json_knows_is_written_as_json_writes_it(state: object) -> None:
    assert state_json(decode(record(state))) == json.dumps(state, separators=(",", ":"))


@pytest.mark.parametrize("protocol", range(2, 6))
def test_instances_that_are_not_persistent(protocol: int) -> None:
    read = decode(record({"u": uuid.UUID(int=5)}, protocol))
    assert state_json(read) == '{"u":{"$class":"uuid.UUID","state":{"int":5}}}'


class Items(list[int]):
    pass


class Pairs(dict[str, int]):
    pass


@pytest.mark.parametrize("protocol", range(2, 6))
def test_subclasses_of_lists_and_dicts(protocol: int) -> None:
    read = decode(record([Items([1, 2]), Pairs(a=1)], protocol))
    assert state_json(read) == (
        f'[{{"$class":"{__name__}.Items","items":[1,2]}},'
        f'{{"$class":"{__name__}.Pairs","pairs":[["a",1]]}}]'
    )


@pytest.mark.parametrize(
    ("state", "text"),
    [
        # Strings are text where they are UTF-8, and bytes elsewhere.
        (b"]q\0(U\x03abcU\x02\xc3\xbcU\x02\xff\xfee.", '["abc","\\u00fc",{"$bytes":"//4="}]'),
        (
            b"cdatetime\ndatetime\nU\x0a"
            + struct.pack(">HBBBBBBBB", 2015, 3, 4, 5, 6, 7, 0, 0, 0)
            + b"\x85R.",
            '{"$datetime":"2015-03-04T05:06:07"}',
        ),
    ],
    ids=["strings", "datetime"],
)
def test_values_of_python_2(state: bytes, text: str) -> None:
    assert state_json(decode(b"\x80\x02capp\nDoc\n.\x80\x02" + state)) == text


@pytest.mark.parametrize(
    ("opcode", "code"), [(b"\x82\x07", 7), (b"\x83\x07\x01", 263), (b"\x84\x07\0\x01\0", 65543)]
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_extension_codes_read_no_table_of_the_process(
    opcode: bytes, code: int, protocol: int
) -> None:
    copyreg.add_extension("os", "system", code)
    try:
        body = b"\x80\x04\x95" + struct.pack("<Q", len(opcode) + 2) + opcode + b")\x81."
        state = body if protocol == 4 else b"\x80\x02" + opcode + b")\x81."
        meta = b"\x80\x04capp\nDoc\n." if protocol == 4 else b"\x80\x02capp\nDoc\n."
        assert state_json(decode(meta + state)) == f'{{"$class":"extension.{code}"}}'
        assert code not in copyreg._extension_cache  # type: ignore[attr-defined]
    finally:
        copyreg.remove_extension("os", "system", code)


@pytest.mark.parametrize(
    ("meta", "name"),
    [
        (b"\x80\x02((U\x03appU\x03DoctNt.", "app.Doc"),
        (b"\x80\x03capp\nDoc\n.", "app.Doc"),
        (b"capp\nDoc\n.", "app.Doc"),
        (b"\x80\x03(capp\nDoc\nNt.", "app.Doc"),
        (b"(capp\nDoc\nNt.", "app.Doc"),
        (b"\x80\x02U\x03appU\x03Doc\x86N\x86.", "app.Doc"),
        (b"\x80\x04\x8c\x03app\x8c\x03Doc\x93.", "app.Doc"),
        (b"\x80\x02U\x08" + OID + b"Q.", "persistent:000000000000002a"),
    ],
)
def test_every_form_of_the_class(meta: bytes, name: str) -> None:
    data = meta + (b"\x80\x04N." if meta[1] == 4 else b"N.")
    assert (class_of(data), decode(data).class_name) == (name, name)


@pytest.mark.parametrize("make", [OOBTree, IOBTree])
@pytest.mark.parametrize("size", [0, 3, 500])
def test_btrees_are_flattened(make: Callable[[], Any], size: int) -> None:
    stored = Stored()
    tree = make()
    for key in range(size):
        tree[key] = key * 2
    read = decode(stored.record_of(tree))
    json = state_json(read)
    assert json is not None
    if size == 0:
        assert json == "null"
    elif size == 3:
        assert json == '{"items":[[0,0],[1,2],[2,4]]}'
    else:
        assert json.startswith('{"children":[{"$ref":')
        bucket = decode(bytes(stored.storage.load(p64(read.references[0].oid))[0]))
        text = state_json(bucket)
        assert text is not None
        assert text.startswith('{"items":[[0,0],[1,2],')
        assert '"next":{"$ref":' in text


def test_sets_of_btrees_are_flattened() -> None:
    assert state_json(decode(Stored().record_of(OOTreeSet("ab")))) == '{"keys":["a","b"]}'


def test_a_persistent_mapping() -> None:
    mapping = persistent.mapping.PersistentMapping(a=1)
    assert state_json(decode(Stored().record_of(mapping))) == '{"data":{"a":1}}'
