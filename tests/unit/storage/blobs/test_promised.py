"""Votes and prepared transactions follow the contents of their rows; sources and destinations that keep
none (specification 26.5, 26.16, 26.18 to 26.20)."""

from __future__ import annotations

from pathlib import Path

import pytest

from neo.node.backlog import JOB_BYTES, JOBS_BYTES
from neo.protocol.blobs import with_content
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.ids import ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_BLOBS,
    FEATURE_OURS,
    FEATURES,
    AbortTransaction,
    AddObject,
    AddPreparedObject,
    Address,
    AddVotedObject,
    AnswerBlob,
    AnswerFetchVoted,
    AnswerStoreVoted,
    AnswerVoted,
    AskBlob,
    AskFetchObjects,
    AskFetchPrepared,
    AskFetchVoted,
    AskPrepareInformation,
    Error,
    NotifyAborted,
    NotifyBlobDamaged,
    NotifyFeatures,
    RequestIdentification,
)
from neo.storage.sync.vote_fetch import FETCHES_MAX
from tests.unit.storage.blobs.contents import content_of, files, parts
from tests.unit.storage.blobs.transfers import (
    commit_blob,
    give,
    has_row,
    lost,
    names,
    record_of,
    refuse,
    store_of,
    upload,
)
from tests.unit.storage.prepared.fetching import SINCE, TEXT, XID, Prepared
from tests.unit.storage.replicas import MAX, OTHER, answer, reply, storage, take_question
from tests.unit.storage.requests import finish, vote
from tests.unit.storage.syncing import (
    ask_voted,
    guest,
    kept,
    messages,
    row,
    send,
    store_later,
    subscriber,
    vote_later,
)
from tests.unit.storage.upstream import SOURCE, backup, upstream
from tests.unit.storage.world import End, World, check_refused, refused

DATA = b"the content"


# -- votes of synchronous backups ------------------------------------------------------------------


@pytest.fixture
def own(world: World) -> End:
    """The master; the cluster is a backup."""
    return backup(world)


def sender(world: World, own: End, address: Address = SOURCE) -> End:
    """Return a node of the upstream cluster, which sends its votes."""
    asked = ask_voted(own, 1, sources={0: address})
    source = upstream(world, FEATURE_OURS, FEATURE_BLOBS)
    reply(source, AskFetchVoted, Error(ErrorCode.TID_NOT_FOUND.value, "it has ended"))
    world.wait(lambda: bool(asked), "AskVoted is not answered")
    own.send(AbortTransaction(p64(1), []))
    return source


@pytest.fixture
def source(world: World, own: End) -> End:
    return sender(world, own)


def test_a_vote_is_stored_when_its_content_is_durable(
    world: World, source: End, folder: Path
) -> None:
    """Specification 26.6, 26.19."""
    send(source, 10, 0, row(10, 2, record_of(DATA)), metadata=True)
    stored = store_later(source, 10, 0)
    world.settle()
    assert not stored and kept(world, 10) == []
    give(source, DATA)
    world.wait(lambda: bool(stored), "the vote is not stored")
    assert stored == [AnswerStoreVoted(p64(10))]
    assert kept(world, 10) == [p64(2)] and files(folder) == names(DATA)


def test_equal_contents_are_asked_for_once(world: World, source: End) -> None:
    """Specification 26.19."""
    rows = [row(10, oid, record_of(DATA)) for oid in (2, 4)]
    send(source, 10, 0, *rows)
    stored = store_later(source, 10, 0)
    give(source, DATA)
    world.wait(lambda: bool(stored), "the vote is not stored")
    assert kept(world, 10) == [p64(2), p64(4)] and not source.inbox


def test_a_transfer_that_fails_is_made_anew_for_another_row(
    world: World, own: End, source: End
) -> None:
    """Specification 26.17: the nodes of its object are asked, its source first."""
    other = sender(world, own, OTHER)
    waiting = []
    for ttid, each in ((10, source), (11, other)):
        send(each, ttid, 0, row(ttid, 2, record_of(DATA)))
        waiting.append(store_later(each, ttid, 0))
    refuse(source, ErrorCode.NOT_READY)
    refuse(other, ErrorCode.NOT_READY)
    give(other, DATA)
    world.wait(lambda: all(waiting), "a vote is not answered")
    assert waiting[1] == [AnswerStoreVoted(p64(11))]
    check_refused(waiting[0][0], ErrorCode.INCOMPLETE_TRANSACTION, "cannot be fetched")


def test_votes_that_wait_for_contents_do_not_hold_back_others(world: World, source: End) -> None:
    """Specification 26.19: however many wait, what was read for them is taken."""
    contents = [bytes([n]) for n in range(JOBS_BYTES // JOB_BYTES + 1)]
    waiting = []
    for n, data in enumerate(contents):
        send(source, 10 + n, 0, row(10 + n, 2, record_of(data)))
        waiting.append(store_later(source, 10 + n, 0))
    send(source, 30, 0, row(30, 2, b"no blob"))
    stored = store_later(source, 30, 0)
    world.wait(lambda: bool(stored), "a vote without blob waits")
    by_checksum = {content_of(data).checksum: data for data in contents}
    for _ in contents:  # they are asked for in any order
        message_id, m = take_question(source, AskBlob)
        answer(source, message_id, AnswerBlob(by_checksum.pop(m.checksum)))
    world.wait(lambda: all(waiting), "a vote is not stored")
    assert waiting == [[AnswerStoreVoted(p64(10 + n))] for n in range(len(contents))]


def test_a_vote_whose_content_cannot_be_had_is_refused(world: World, source: End) -> None:
    """Specification 26.19: nothing is lost that was not promised."""
    send(source, 10, 0, row(10, 2, record_of(DATA)))
    stored = store_later(source, 10, 0)
    refuse(source)
    world.wait(lambda: bool(stored), "the vote is not refused")
    code, text = refused(stored[0])
    assert code == ErrorCode.INCOMPLETE_TRANSACTION.value
    assert text == f"content {content_of(DATA)} of object {p64(2).hex()} is on no node"
    assert kept(world, 10) == [] and lost(world) == []


def test_a_vote_that_ended_meanwhile_leaves_nothing(
    world: World, source: End, folder: Path
) -> None:
    """Specification 26.9, 26.19."""
    send(source, 10, 0, row(10, 2, record_of(DATA)))
    world.wait(lambda: bool(source.inbox), "the content is not asked for")
    source.send(NotifyAborted(p64(10)))
    give(source, DATA)

    def gone() -> bool:
        world.host.advance(1)
        return not files(folder) and not parts(folder)

    world.wait(gone, "the content stays")
    assert kept(world, 10) == []


def fetched(own: End, source: End) -> list[object]:
    """The own master asks for a vote, of which the rows came, but not the content."""
    asked = ask_voted(own, 10, 2, sources={0: SOURCE})
    message_id, _ = take_question(source, AskFetchVoted)
    send(source, 10, 0, row(10, 2, record_of(DATA)), metadata=True)
    answer(source, message_id, AnswerFetchVoted(p64(10)))
    own.world.settle()
    assert not asked
    return asked


def test_the_answer_to_the_master_waits_for_contents(
    world: World, own: End, source: End, folder: Path
) -> None:
    """Specification 26.19."""
    asked = fetched(own, source)
    give(source, DATA)
    world.wait(lambda: bool(asked), "AskVoted is not answered")
    assert asked == [AnswerVoted(p64(10))]
    assert kept(world, 10) == [p64(2)] and files(folder) == names(DATA)


def test_the_answer_to_the_master_tells_which_content_cannot_be_had(
    world: World, own: End, source: End
) -> None:
    """Specification 26.19: after a few fetches."""
    asked = fetched(own, source)
    refuse(source)
    for _ in range(FETCHES_MAX - 1):
        message_id, _ = take_question(source, AskFetchVoted)
        send(source, 10, 0, row(10, 2, record_of(DATA)), metadata=True)
        answer(source, message_id, AnswerFetchVoted(p64(10)))
        refuse(source)
    world.wait(lambda: bool(asked), "AskVoted is not answered")
    code, text = refused(asked[0])
    assert code == ErrorCode.INCOMPLETE_TRANSACTION.value
    assert f"content {content_of(DATA)} of object {p64(2).hex()} is on no node" in text


# -- prepared transactions -------------------------------------------------------------------------


def prepared_row(world: World) -> Prepared:
    """S1 fetches a prepared transaction with a row that refers to a content."""
    node = Prepared(world)
    node.end.send(NotifyFeatures([FEATURE_OURS, FEATURE_BLOBS]))
    node.mark()
    node.row(10, 2, record_of(DATA))
    node.end_rows()
    world.wait(lambda: bool(node.end.inbox), "the content is not asked for")
    world.settle()
    assert not world.backend.commits.prepared_rows(p64(10)).stored and not node.master.inbox
    return node


def test_a_cell_joins_a_prepared_transaction_when_its_contents_are_durable(
    world: World, folder: Path
) -> None:
    """Specification 26.6, 26.19."""
    node = prepared_row(world)
    give(node.end, DATA)
    node.join(10)
    assert files(folder) == names(DATA)
    assert [each.oid for each in world.backend.commits.prepared_rows(p64(10)).stored] == [p64(2)]
    node.done(12)
    finish(node.master, 10, 20)
    assert has_row(world)


def test_a_prepared_transaction_without_its_content_is_not_joined(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 26.19."""
    node = prepared_row(world)
    refuse(node.end)
    world.wait(lambda: "is on no node" in caplog.text, "the fetch does not fail")
    world.settle()
    assert not node.master.inbox and not world.backend.commits.prepared_rows(p64(10)).stored
    assert lost(world) == []


# -- sources -------------------------------------------------------------------------------------


@pytest.fixture
def committed(world: World, master: End, client: End) -> World:
    """Transaction 12 has a content."""
    commit_blob(master, client, DATA, 12)
    return world


def fetch_objects(peer: End) -> object:
    answer: object = peer.ask(AskFetchObjects(0, 1000, ZERO_TID, MAX, ZERO_OID, {}))
    return answer


def test_a_destination_that_keeps_contents_is_sent_the_row(committed: World, master: End) -> None:
    """Specification 26.18."""
    peer = storage(committed, master, 2, FEATURE_BLOBS)
    peer.take(NotifyFeatures)
    fetch_objects(peer)
    assert peer.take(AddObject).data == with_content(b"pickle", content_of(DATA))


@pytest.mark.parametrize("features", [(), (FEATURE_OURS,)])
def test_a_destination_that_keeps_none_is_refused(
    committed: World, master: End, features: tuple[str, ...]
) -> None:
    """Specification 26.18: before the row is sent; the error names it."""
    peer = storage(committed, master, 2, *features)
    code, text = refused(fetch_objects(peer))
    assert code == ErrorCode.REPLICATION_ERROR.value
    assert text.startswith(f"object {p64(2).hex()} has a blob, and S2 (")
    assert not any(isinstance(m, AddObject) for m in messages(peer))


def voted(world: World, master: End, client: End, prepare: bool = False) -> None:
    """Transaction 10 has voted, or is prepared, with a content."""
    upload(client, DATA)
    client.ask(store_of(DATA))
    vote(client, 10, 2)
    if prepare:
        assert not isinstance(
            master.ask(AskPrepareInformation(p64(10), XID, SINCE, TEXT, [0])), Error
        )


@pytest.mark.parametrize("able", [False, True])
def test_a_destination_of_a_prepared_transaction(
    world: World, master: End, client: End, able: bool
) -> None:
    """Specification 26.18, 26.19."""
    voted(world, master, client, prepare=True)
    peer = storage(world, master, 2, FEATURE_OURS, *([FEATURE_BLOBS] if able else []))
    found = peer.ask(AskFetchPrepared(0, [p64(10)]))
    sent = [m for m in messages(peer) if isinstance(m, AddPreparedObject)]
    if able:
        assert [m.oid for m in sent] == [p64(2)]
    else:
        assert refused(found)[0] == ErrorCode.REPLICATION_ERROR.value and not sent


@pytest.mark.parametrize("able", [False, True])
def test_a_destination_of_a_vote(world: World, master: End, client: End, able: bool) -> None:
    """Specification 26.18, 26.19."""
    voted(world, master, client)
    peer = guest(world, FEATURE_OURS, *([FEATURE_BLOBS] if able else []))
    found = peer.ask(AskFetchVoted(p64(10), [0]))
    sent = [m for m in messages(peer) if isinstance(m, AddVotedObject)]
    if able:
        assert found == AnswerFetchVoted(p64(10)) and [m.oid for m in sent] == [p64(2)]
    else:
        assert refused(found)[0] == ErrorCode.REPLICATION_ERROR.value and not sent


def test_a_vote_is_refused_if_its_backup_keeps_no_contents(world: World, client: End) -> None:
    """Specification 25.7, 26.18."""
    subscriber(world, 0)
    upload(client, DATA)
    client.ask(store_of(DATA))
    answers = vote_later(client, 10, 2)
    world.wait(lambda: bool(answers), "the vote is not answered")
    check_refused(answers[0], ErrorCode.INCOMPLETE_TRANSACTION, "keeps no contents of blobs")


@pytest.mark.parametrize("foreign", [False, True])
def test_storage_nodes_read_contents(committed: World, master: End, foreign: bool) -> None:
    """Specification 26.16, 26.20; ``foreign``: of a backup."""
    world = committed
    peer = guest(world) if foreign else storage(world, master, 2)
    checksum = content_of(DATA).checksum
    assert peer.ask(AskBlob(p64(2), checksum, 4, 3)) == AnswerBlob(DATA[4:7])
    unknown = AskBlob(p64(2), bytes(32), 0, 3)
    check_refused(peer.ask(unknown), ErrorCode.OID_NOT_FOUND)


@pytest.mark.parametrize("foreign", [False, True])
def test_storage_nodes_report_damage(
    committed: World, master: End, folder: Path, foreign: bool
) -> None:
    """Specification 26.17, 26.20: the file is verified."""
    world = committed
    peer = guest(world) if foreign else storage(world, master, 2)
    name = content_of(DATA).checksum.hex()
    (folder / name[:2] / name).chmod(0o600)
    (folder / name[:2] / name).write_bytes(b"the damaged")
    peer.send(NotifyBlobDamaged(p64(2), content_of(DATA).checksum))
    world.wait(lambda: bool(lost(world)), "the damage is not noted")
    assert lost(world) == [content_of(DATA).checksum]


def announced(world: World, foreign: bool) -> list[str]:
    """Return what a node tells another storage node, or one of a backup."""
    master = world.operate()
    if foreign:
        end = world.stranger()
        extra = {FEATURES: [FEATURE_OURS]}
        end.ask(RequestIdentification(NodeType.STORAGE, None, OTHER, "test", 3.0, extra))
    else:
        end = storage(world, master, 2, FEATURE_OURS)
    features: list[str] = end.take(NotifyFeatures).features
    return features


@pytest.mark.parametrize("foreign", [False, True])
def test_a_node_with_a_folder_announces_it(world: World, foreign: bool) -> None:
    """Specification 26.5."""
    assert FEATURE_BLOBS in announced(world, foreign)


@pytest.mark.parametrize("blob_dir", [None])
@pytest.mark.parametrize("foreign", [False, True])
def test_a_node_without_folder_does_not_announce_one(world: World, foreign: bool) -> None:
    """Specification 26.5."""
    assert FEATURE_BLOBS not in announced(world, foreign)
