"""The master asks all storage nodes which contents they lost (specification 26.23)."""

from __future__ import annotations

from neo.master.maintenance.reports import ANSWER_SECONDS
from neo.protocol.packets import (
    FEATURE_BLOBS,
    FEATURE_OURS,
    FEATURES,
    AnswerLostContents,
    AskLostContents,
    LostContentRow,
)
from tests.unit.master.cluster import MasterWorld, tid


class BlobWorld(MasterWorld):
    extra = {FEATURES: [FEATURE_BLOBS, FEATURE_OURS]}


def row(nid: int) -> LostContentRow:
    return nid, tid(42), tid(8), bytes(32), 5


def test_the_answers_of_all_nodes_are_told() -> None:
    world = BlobWorld()
    storages = world.running(3)
    answer = world.admin().ask(AskLostContents(10))
    for nid, storage in enumerate(storages[:2], 1):
        storage.answer(storage.take(AskLostContents), AnswerLostContents([row(nid)]))
    assert not answer.done
    world.host.advance(ANSWER_SECONDS)
    assert [tuple(r) for r in answer.result().row_list] == [row(1), row(2)], "one does not answer"


def test_nodes_without_a_folder_for_contents_are_not_asked() -> None:
    world = BlobWorld()
    world.extra = {FEATURES: [FEATURE_OURS]}
    (storage,) = world.running(1)
    answer = world.admin().ask(AskLostContents(10))
    world.host.advance()
    assert answer.result().row_list == [] and not storage.has(AskLostContents)
