"""A storage node receives, keeps, serves and removes contents of blobs (specification 26.5 to 26.16)."""

from __future__ import annotations

import errno
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from neo.node.backlog import JOB_BYTES_MIN, JOBS_BYTES
from neo.protocol.blobs import PIECE_BYTES, with_content
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import p64
from neo.protocol.packets import (
    FEATURE_BLOBS,
    AbortTransaction,
    AnswerBlob,
    AnswerPack,
    AnswerStoreBlob,
    AnswerStoreObject,
    AnswerVoteSingle,
    AskPack,
    AskStoreBlob,
    AskStoreObject,
    AskVoteSingle,
    AskVoteTransaction,
    NotifyBlobDamaged,
    NotifyFeatures,
)
from neo.storage.backend.api import BackendFailure
from neo.storage.blobs import contents
from neo.topology.masters import RETRY_SECONDS
from tests.unit.storage.blobs.contents import content_of, files, parts
from tests.unit.storage.blobs.transfers import OID, TTID, commit_blob, piece, read, store_of, upload
from tests.unit.storage.requests import commit, finish, load, store_request, vote
from tests.unit.storage.world import C1, C2, End, MakeWorld, World, check_refused, refused


def wait_for_files(world: World, folder: Path, *wanted: bytes) -> None:
    """Let time pass until the folder has these contents and no part."""
    names = sorted(content_of(data).checksum.hex() for data in wanted)

    def removed() -> bool:
        world.host.advance(contents.COLLECT_SECONDS)
        return files(folder) == names and not parts(folder)

    world.wait(removed, f"the folder has {files(folder)} and {parts(folder)}")


# -- storing -------------------------------------------------------------------------------------


def test_a_content_is_a_file_before_the_last_piece_is_answered(
    world: World, master: End, client: End, folder: Path
) -> None:
    """Specification 26.7, 26.10, 26.11."""
    data = b"0123456789"
    first = AskStoreBlob(p64(TTID), p64(OID), 0, data[:4], None)
    assert client.ask(first) == AnswerStoreBlob(p64(TTID), p64(OID))
    assert files(folder) == [] and len(parts(folder)) == 1
    assert client.ask(piece(data, 4)) == AnswerStoreBlob(p64(TTID), p64(OID))
    assert files(folder) == [content_of(data).checksum.hex()] and parts(folder) == []
    assert client.ask(store_of(data)) == AnswerStoreObject(None)
    vote(client, TTID, OID)
    finish(master, TTID, 12)
    wait_for_files(world, folder, data)
    assert load(client, OID).data == with_content(b"pickle", content_of(data))
    assert read(client, data) == AnswerBlob(data)
    assert read(client, data, 4, 2) == AnswerBlob(b"45")


def test_a_record_waits_for_the_content_that_was_sent_before(
    world: World, master: End, client: End
) -> None:
    """Specification 26.12."""
    data = b"x" * PIECE_BYTES
    client.ask_later(piece(data))
    assert client.ask(store_of(data)) == AnswerStoreObject(None)
    assert world.backend.blobs.has_content(content_of(data).checksum)


def test_a_record_whose_content_is_here_is_stored_though_it_cannot_be_written_again(
    world: World, master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 26.12."""
    calls: list[Any] = []
    commit_blob(master, client, b"data", 12)
    monkeypatch.setattr(world.folder, "store", lambda *call: calls.append(call[-1]))
    sent = client.ask_later(piece(b"data", ttid=20))
    stored = client.ask_later(store_of(b"data", 20, 12))
    world.settle()
    assert not stored
    calls[0](OSError(errno.ENOSPC, "full"))
    world.wait(lambda: bool(sent and stored), "the upload or the record has no answer")
    refused(sent[0])
    assert stored == [AnswerStoreObject(None)]


def test_a_vote_behind_a_record_that_waits_for_its_content_is_refused(
    world: World, master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 7.52: also if the object was stored in the transaction before."""
    upload(client, b"old")
    assert client.ask(store_of(b"old")) == AnswerStoreObject(None)
    calls: list[Any] = []
    monkeypatch.setattr(world.folder, "store", lambda *call: calls.append(call[-1]))
    client.ask_later(piece(b"new"))
    stored = client.ask_later(store_of(b"new"))
    single = AskVoteSingle(p64(TTID), b"", b"", b"", [p64(OID)], [], True)
    assert client.ask(single) == AnswerVoteSingle(False)
    calls[0](None)
    world.wait(lambda: stored == [AnswerStoreObject(None)], "the record is not stored")
    assert client.ask(single) == AnswerVoteSingle(True)
    finish(master, TTID, 12)
    assert load(client, OID).data == with_content(b"pickle", content_of(b"new"))


@pytest.mark.parametrize(
    ("size", "count"),
    [(PIECE_BYTES, JOBS_BYTES // PIECE_BYTES), (1, JOBS_BYTES // JOB_BYTES_MIN)],
)
def test_contents_on_their_way_to_the_disk_are_bounded_by_their_bytes(
    world: World, client: End, monkeypatch: pytest.MonkeyPatch, size: int, count: int
) -> None:
    """Specification 2.43: many small ones share their syncs."""
    calls: list[Any] = []
    monkeypatch.setattr(world.folder, "store", lambda *call: calls.append(call[-1]))
    sent = [client.ask_later(piece(b"x" * size, ttid=10 + number)) for number in range(count + 2)]
    world.settle()
    assert len(calls) == count
    calls[0](None)
    world.wait(lambda: bool(sent[0]), "the first content has no answer")
    world.settle()
    assert len(calls) == count + 1


def test_a_compressed_record_has_no_content(client: End) -> None:
    """Specification 26.2: bytes of a compressed record mean nothing."""
    data = with_content(b"compressed", content_of(b"not sent"))
    request = AskStoreObject(p64(OID), p64(0), 1, sha1(data).digest(), data, None, p64(TTID))
    assert client.ask(request) == AnswerStoreObject(None)


BEGUN = AskStoreBlob(p64(TTID), p64(OID), 0, b"0123", None)


@pytest.mark.parametrize(
    ("before", "request_", "code", "text"),
    [
        pytest.param(
            None,
            store_of(b"not sent"),
            ErrorCode.INCOMPLETE_TRANSACTION,
            "send it before the record",
            id="a record without its content (26.12)",
        ),
        pytest.param(
            BEGUN,
            AskVoteTransaction(p64(TTID)),
            ErrorCode.INCOMPLETE_TRANSACTION,
            "cannot vote",
            id="a vote while a content is not complete (26.12)",
        ),
        pytest.param(
            BEGUN,
            replace(BEGUN, offset=3),
            ErrorCode.PROTOCOL_ERROR,
            "the one at 4 expected",
            id="a piece twice (26.10)",
        ),
        pytest.param(
            BEGUN,
            replace(BEGUN, offset=5),
            ErrorCode.PROTOCOL_ERROR,
            "the one at 4 expected",
            id="a piece too late (26.10)",
        ),
        pytest.param(
            None,
            replace(BEGUN, data=bytes(PIECE_BYTES + 1)),
            ErrorCode.PROTOCOL_ERROR,
            "",
            id="a piece that is too long (26.10)",
        ),
        pytest.param(
            None,
            piece(b"0123", 2),
            ErrorCode.INCOMPLETE_TRANSACTION,
            "begin the transaction again",
            id="a continuation of nothing: the node was restarted (26.10)",
        ),
    ],
)
def test_what_comes_out_of_order_is_refused(
    world: World, client: End, before: Any, request_: Any, code: ErrorCode, text: str
) -> None:
    if before is not None:
        client.ask(store_request(TTID, OID))
        client.ask(before)
    check_refused(client.ask(request_), code, text)
    assert not world.backend.blobs.has_content(content_of(b"not sent").checksum)


def test_a_content_that_does_not_match_is_refused_and_deleted(client: End, folder: Path) -> None:
    """Specification 26.11."""
    wrong = AskStoreBlob(p64(TTID), p64(OID), 0, b"damaged", content_of(b"sent").checksum)
    code, _ = refused(client.ask(wrong))
    assert code == ErrorCode.PROTOCOL_ERROR.value
    assert files(folder) == [] and parts(folder) == []
    code, _ = refused(client.ask(store_of(b"sent")))
    assert code == ErrorCode.INCOMPLETE_TRANSACTION.value


def test_an_object_may_be_stored_twice_in_a_transaction(
    world: World, master: End, client: End, folder: Path
) -> None:
    upload(client, b"first")
    assert client.ask(store_of(b"first")) == AnswerStoreObject(None)
    upload(client, b"second")
    assert client.ask(store_of(b"second")) == AnswerStoreObject(None)
    vote(client, TTID, OID)
    finish(master, TTID, 12)
    wait_for_files(world, folder, b"second")


# -- the end of transactions ---------------------------------------------------------------------


@pytest.mark.parametrize("end", ["abort", "lost connection", "end of the operation"])
def test_what_does_not_vote_leaves_no_content(
    world: World, master: End, client: End, folder: Path, end: str
) -> None:
    """Specification 26.13."""
    upload(client, b"whole")
    client.ask(piece(b"beginning", last=False, ttid=11))
    if end == "abort":
        client.send(AbortTransaction(p64(TTID), []))
        client.send(AbortTransaction(p64(11), []))
    elif end == "lost connection":
        client.disconnect()
    else:
        master.disconnect()
        world.host.advance(RETRY_SECONDS)
        world.operate()
    wait_for_files(world, folder)


def test_an_abort_after_the_record_drops_contents(world: World, client: End, folder: Path) -> None:
    """Specification 26.9, 26.13."""
    upload(client, b"whole")
    assert client.ask(store_of(b"whole")) == AnswerStoreObject(None)
    vote(client, TTID, OID)
    client.send(AbortTransaction(p64(TTID), []))
    wait_for_files(world, folder)


def test_equal_contents_are_one_file_until_the_last_is_gone(
    world: World, master: End, client: End, folder: Path
) -> None:
    """Specification 26.9."""
    other = world.client(master, C2)
    upload(client, b"same")
    upload(other, b"same", 11)
    client.send(AbortTransaction(p64(TTID), []))
    wait_for_files(world, folder, b"same")
    assert other.ask(store_of(b"same", 11)) == AnswerStoreObject(None)


def test_a_pack_removes_files(world: World, master: End, client: End, folder: Path) -> None:
    """Specification 26.3, 26.9."""
    commit_blob(master, client, b"old", 12)
    commit_blob(master, client, b"new", 22, 20, 12)
    wait_for_files(world, folder, b"old", b"new")
    master.ask(AskPack(p64(22)))
    wait_for_files(world, folder, b"new")
    assert read(client, b"new") == AnswerBlob(b"new")
    check_refused(read(client, b"old"), ErrorCode.OID_NOT_FOUND)


def test_the_row_of_a_value_is_deleted_durably_when_another_one_keeps_the_file(
    world: World, master: End, client: End, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 26.9. Nobody waits for it, so that a node without other work must plan it."""
    commit_blob(master, client, b"same", 12)
    commit_blob(master, client, b"same", 22, 20, 12)
    planned: list[str] = []
    assert master.ask(AskPack(p64(22))) == AnswerPack(True)
    world.settle()
    monkeypatch.setattr(world.core.database, "commit_soon", lambda: planned.append("soon"))
    world.host.advance(contents.COLLECT_SECONDS)
    assert planned == ["soon"]
    assert files(folder) == [content_of(b"same").checksum.hex()]


# -- features ------------------------------------------------------------------------------------


def features(world: World, master: End) -> list[str]:
    world.notify(master, world.client_row(C1))
    end = world.stranger()
    end.inbox.clear()
    world.identify(end, extra={"features": []})
    return [f for _, m in end.inbox if isinstance(m, NotifyFeatures) for f in m.features]


def test_a_node_with_a_folder_announces_blobs(world: World, master: End) -> None:
    """Specification 26.5."""
    assert FEATURE_BLOBS in features(world, master)


@pytest.mark.parametrize("blob_dir", [None])
def test_a_node_without_a_folder_refuses_contents(world: World, master: End) -> None:
    """Specification 26.5."""
    assert FEATURE_BLOBS not in features(world, master)
    client = world.client(master, C2)
    for request in (piece(b"x"), store_of(b"x")):
        check_refused(client.ask(request), ErrorCode.INCOMPLETE_TRANSACTION, "set blob_dir")
    check_refused(read(client, b"x"), ErrorCode.OID_NOT_FOUND, "set blob_dir")


# -- folders and databases -----------------------------------------------------------------------


def test_contents_outlive_a_restart_and_what_is_left_is_removed(
    make_world: MakeWorld, world: World, master: End, client: End, folder: Path
) -> None:
    """Specification 26.7, 26.9."""
    commit_blob(master, client, b"kept", 12)
    world.close()
    useless = folder / "ab" / ("ab" * 32)
    useless.write_bytes(b"left by a crash")
    (folder / "parts" / "upload-1").write_bytes(b"left by a crash")
    again = make_world()
    client = again.client(again.operate())
    wait_for_files(again, folder, b"kept")
    assert read(client, b"kept") == AnswerBlob(b"kept")


def test_a_lost_file_is_told_and_the_object_named(
    make_world: MakeWorld,
    world: World,
    master: End,
    client: End,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Specification 26.9."""
    commit_blob(master, client, b"kept", 12)
    world.close()
    kept = content_of(b"kept")
    (folder / kept.checksum.hex()[:2] / kept.checksum.hex()).unlink()
    again = make_world()
    client = again.client(again.operate())
    again.wait(lambda: kept.checksum in again.core.blobs.contents.lost, "the loss is not noticed")
    assert again.core.blobs.contents.lost[kept.checksum] == (kept, p64(OID))
    again.wait(lambda: "1 content of a blob is not in the folder" in caplog.text, "it is not told")
    # A client that stores it anew brings it back.
    upload(client, b"kept", 20)
    assert kept.checksum not in again.core.blobs.contents.lost


def test_a_damaged_file_is_found_when_a_client_reports_it(
    world: World, master: End, client: End, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 26.15."""
    commit_blob(master, client, b"kept", 12)
    kept = content_of(b"kept")
    (folder / kept.checksum.hex()[:2] / kept.checksum.hex()).write_bytes(b"tepk")
    client.send(NotifyBlobDamaged(p64(OID), kept.checksum))
    world.wait(lambda: kept.checksum in world.core.blobs.contents.lost, "it is not verified")
    assert "is lost on this node" in caplog.text


def test_a_report_about_an_intact_file_points_at_the_network(
    world: World, master: End, client: End, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 26.15."""
    commit_blob(master, client, b"kept", 12)
    client.send(NotifyBlobDamaged(p64(OID), content_of(b"kept").checksum))
    world.wait(lambda: "its file here is intact" in caplog.text, "it is not verified")
    assert not world.core.blobs.contents.lost


def test_a_database_with_contents_needs_its_folder(
    tmp_path: Path, world: World, master: End, client: End, folder: Path
) -> None:
    """Specification 26.7."""
    database = str(tmp_path / "node.sqlite")
    commit_blob(master, client, b"kept", 12)
    world.close()
    with pytest.raises(BackendFailure, match="set blob_dir to this folder"):
        World(database)
    with pytest.raises(BackendFailure, match="is empty, and the database has contents"):
        World(database, blob_dir=str(tmp_path / "other"))
    with pytest.raises(BackendFailure, match="belongs to another database"):
        World(str(tmp_path / "second.sqlite"), blob_dir=str(folder))


def test_a_database_without_contents_takes_another_folder_or_none(
    tmp_path: Path, world: World, master: End, client: End
) -> None:
    """Specification 26.7: so the copy of a database, which never had a blob, starts."""
    database = str(tmp_path / "node.sqlite")
    commit(master, client, 10, 12, 2)
    world.close()
    World(database).close()
    other = World(database, blob_dir=str(tmp_path / "other"))
    again = other.operate()
    commit_blob(again, other.client(again), b"kept", 22, 20, 12)
    other.close()


def test_a_node_that_is_dropped_deletes_its_contents(
    world: World, master: End, client: End, folder: Path
) -> None:
    """Specification 4.7."""
    commit_blob(master, client, b"kept", 12)
    world.core.erase()
    assert files(folder) == []
