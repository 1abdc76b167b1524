"""References of records to contents (specification 26.1, 26.2, 26.4)."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neo.protocol.blobs import (
    MAGIC,
    REFERENCE_BYTES,
    SIZE_MAX,
    Content,
    content_hash,
    content_of,
    with_content,
    without_content,
)

CONTENTS = st.builds(
    Content, st.integers(0, SIZE_MAX), st.binary(min_size=32, max_size=32)
)


@given(st.binary(), CONTENTS)
def test_a_reference_is_found_and_taken_away(record: bytes, content: Content) -> None:
    referring = with_content(record, content)
    if content_of(record) is None:
        assert without_content(referring) == record
    assert content_of(referring) == content
    assert len(referring) == len(without_content(record)) + REFERENCE_BYTES


@given(CONTENTS, CONTENTS)
def test_a_record_has_one_reference(first: Content, second: Content) -> None:
    assert with_content(with_content(b"r", first), second) == with_content(b"r", second)


@pytest.mark.parametrize("record", [b"", b"x" * 55, b"x" * 56, b"x" * 57, MAGIC, MAGIC + b"x" * 39])
def test_other_records_refer_to_nothing(record: bytes) -> None:
    assert content_of(record) is None
    assert without_content(record) is record


def test_a_reference_has_the_bytes_of_the_specification() -> None:
    content = Content(3, content_hash().digest())
    assert len(MAGIC) == 16
    assert REFERENCE_BYTES == 56
    assert with_content(b"r", content) == b"r" + MAGIC + b"\0\0\0\0\0\0\0\x03" + content.checksum


def test_unpicklers_do_not_see_the_reference() -> None:
    record = with_content(pickle.dumps({"a": 1}), Content(1, b"c" * 32))
    assert pickle.loads(record) == {"a": 1}
