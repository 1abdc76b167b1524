"""The slow scrub compares all copies once in a period, and gives way to other work."""

from __future__ import annotations

from neo.protocol.enums import CellState, ClusterState, ErrorCode
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import (
    AnswerRecovery,
    AnswerScrub,
    AskCheckReport,
    AskRecovery,
    AskScrub,
    CheckPartition,
    CheckReplicas,
    NotifyPartitionChecked,
    NotifyPartitionCorrupted,
    SetClusterState,
)
from tests.support.remote import error_of
from tests.unit.master.checked import Served
from tests.unit.master.cluster import tid

UP, OUT, BAD = CellState.UP_TO_DATE, CellState.OUT_OF_DATE, CellState.CORRUPTED
#: The pause between two ticks.
PAUSE = 600.0
#: The slot of each of four partitions, and their round.
SLOT = 12 * PAUSE
ROUND = 4 * SLOT


class Scrubbed(Served):
    """A cluster that compares its copies once in a round; the first slot has just begun."""

    def __init__(self, count: int = 2) -> None:
        super().__init__(count, scrub_days=ROUND / 86400)
        self.host.now -= self.host.time() % ROUND + 1

    def take(self) -> list[tuple[int, CheckPartition]]:
        """Return (node, question) of all comparisons that began since the last call."""
        asked = self.asked()
        for storage in self.storages:
            while storage.has(AskRecovery):  # the partition table is on its disk
                storage.answer(storage.take(AskRecovery), AnswerRecovery(None, None, None))
            storage.received.clear()
        return asked

    def pass_by(self, seconds: float) -> list[int]:
        """Let time pass, in which nodes find no difference. Return the partitions that were compared."""
        compared = []
        for _ in range(int(seconds / PAUSE)):
            self.host.advance(PAUSE)
            for nid, question in self.take():
                compared.append(question.partition)
                self.storages[nid - 1].send(NotifyPartitionChecked(question.partition, ""))
        return compared

    def begin(self) -> tuple[int, int]:
        """Return (node, partition) of the first comparison, which is under way."""
        self.host.advance(PAUSE)
        ((nid, question),) = self.take()
        assert question == CheckPartition(question.partition, ("", None), ZERO_TID, tid(100))
        return nid, question.partition

    def rows(self) -> dict[int, tuple[str, str]]:
        report = self.admin().ask(AskCheckReport()).result()
        return {partition: (finding, text) for partition, _, finding, text in report.row_list}


def test_all_copies_are_compared_once_in_a_period_one_after_the_other() -> None:
    """Specification 11.21."""
    world = Scrubbed()
    for partition in (0, 1, 2, 3, 0):
        assert world.pass_by(SLOT) == [partition]
    assert world.rows() == {}  # nothing is wrong


def test_how_far_it_is_is_told() -> None:
    """Specification 11.23."""
    world = Scrubbed()
    begun = world.admin().ask(AskScrub()).result().begun
    world.pass_by(2 * SLOT)
    assert world.admin().ask(AskScrub()).result() == AnswerScrub(ROUND, begun, None, 2)
    world.pass_by(SLOT)
    before = world.host.time()
    world.pass_by(SLOT)
    scrub = world.admin().ask(AskScrub()).result()
    assert before < scrub.round_end < world.host.time() and scrub.compared == 0


def test_a_master_that_begins_compares_what_is_due() -> None:
    """So a master that is restarted each night completes its rounds (specification 11.21)."""
    compared = []
    for slot in range(4):
        world = Scrubbed()
        world.host.now += slot * SLOT + SLOT / 2
        compared += world.pass_by(PAUSE)
    assert compared == [0, 1, 2, 3]


def test_without_a_period_nothing_is_compared() -> None:
    """Specification 11.21."""
    world = Served(scrub_days=0.0)
    world.host.advance(2 * ROUND)
    assert not world.asked()
    assert world.admin().ask(AskScrub()).result().period == 0


def test_single_copies_are_skipped() -> None:
    world = Scrubbed(1)
    assert world.pass_by(4 * SLOT) == []
    assert world.admin().ask(AskScrub()).result().round_end is not None


def test_it_waits_for_the_check_of_the_operator() -> None:
    """Specification 11.22."""
    world = Scrubbed()
    world.do(CheckReplicas({3: None}, ZERO_TID, None))
    ((nid, _),) = world.take()
    world.host.advance(PAUSE)
    assert not world.take()
    world.storages[nid - 1].send(NotifyPartitionChecked(3, ""))
    world.host.advance(PAUSE)
    assert [question.partition for _, question in world.take()] == [0]


def test_the_check_of_the_operator_does_not_wait_for_it() -> None:
    world = Scrubbed()
    scrubber, _ = world.begin()
    world.do(CheckReplicas({1: None, 2: None}, ZERO_TID, None))
    asked = world.take()
    assert [question.partition for _, question in asked] == [1, 2]
    world.storages[scrubber - 1].send(NotifyPartitionChecked(0, ""))
    assert {finding for finding, _ in world.rows().values()} == {"running"}
    for nid, question in asked:
        world.storages[nid - 1].send(NotifyPartitionChecked(question.partition, ""))
    assert world.rows() == {1: ("equal", ""), 2: ("equal", "")}
    assert world.admin().ask(AskScrub()).result().compared == 1


def test_the_check_of_the_operator_asks_when_the_scrub_of_its_partition_is_over() -> None:
    """Answers do not tell to which question they belong."""
    world = Scrubbed()
    nid, partition = world.begin()
    reference = 3 - nid
    world.do(CheckReplicas({partition: reference}, ZERO_TID, None))
    assert not world.take()
    world.storages[nid - 1].send(NotifyPartitionCorrupted(partition, [1, 2]))
    assert world.rows() == {partition: ("running", "")}
    world.storages[nid - 1].send(NotifyPartitionChecked(partition, ""))
    ((asked, _),) = world.take()
    assert asked == nid
    world.storages[nid - 1].send(NotifyPartitionCorrupted(partition, [nid]))
    world.storages[nid - 1].send(NotifyPartitionChecked(partition, ""))
    assert world.rows()[partition][0] == "corrupted"


def test_what_the_operator_asked_fails_with_the_node_that_is_lost_before_it_is_asked() -> None:
    world = Scrubbed(3)
    nid, partition = world.begin()
    world.do(CheckReplicas({partition: None}, ZERO_TID, None))
    world.storages[nid - 1].lose()
    assert world.rows() == {partition: ("failed", f"S{nid} was lost")}


def test_it_waits_for_packs_and_copies() -> None:
    """Specification 11.22."""
    world = Scrubbed()
    world.master.packs.running = True
    world.host.advance(PAUSE)
    assert not world.take()
    world.master.packs.running = False
    world.master.partitions.rows[2][2] = OUT
    world.host.advance(PAUSE)
    assert not world.take()
    world.master.partitions.rows[2][2] = UP
    world.host.advance(PAUSE)
    assert [question.partition for _, question in world.take()] == [0]


def test_it_does_not_wait_for_the_cells_of_a_node_that_is_away() -> None:
    world = Scrubbed(3)
    world.storages[2].lose()
    assert OUT in world.master.partitions.rows[0].values()
    world.take()
    assert world.pass_by(SLOT) == [0]


def test_it_waits_while_the_cluster_does_not_serve() -> None:
    world = Scrubbed(1)
    world.storages[0].lose()
    assert world.master.cluster.state is ClusterState.RECOVERING
    world.host.advance(PAUSE)
    assert world.admin().ask(AskScrub()).result().compared == 0


def test_what_could_not_be_compared_is_tried_again_in_its_slot() -> None:
    """Specification 11.22."""
    world = Scrubbed(3)
    nid, partition = world.begin()
    world.storages[nid - 1].send(NotifyPartitionChecked(partition, "S2: gone"))
    assert world.admin().ask(AskScrub()).result().compared == 0
    nid, again = world.begin()
    assert again == partition
    world.storages[nid - 1].lose()
    world.take()
    assert world.begin()[1] == partition


def test_what_it_finds_is_reported_until_it_is_found_right() -> None:
    world = Scrubbed()
    nid, partition = world.begin()
    world.storages[nid - 1].send(NotifyPartitionCorrupted(partition, [1, 2]))
    world.storages[nid - 1].send(NotifyPartitionChecked(partition, ""))
    found = ("undecided", "S1, S2 differ: name the one to believe: neoctl check 0:NODE")
    assert world.rows() == {partition: found}
    world.do(CheckReplicas({2: None}, ZERO_TID, None))
    assert world.rows()[partition] == found
    ((nid, _),) = world.take()
    world.storages[nid - 1].send(NotifyPartitionChecked(2, ""))
    world.pass_by(4 * SLOT)
    assert world.rows()[partition] == ("equal", "")


def test_wrong_copies_are_taken_out_of_service() -> None:
    world = Scrubbed(3)
    nid, partition = world.begin()
    world.storages[nid - 1].send(NotifyPartitionCorrupted(partition, [3]))
    assert world.master.partitions.rows[partition] == {1: UP, 2: UP, 3: BAD}
    assert world.rows() == {partition: ("corrupted", "wrong on S3: neoctl repair 0:")}


def test_a_node_that_only_tells_differences_is_not_waited_for() -> None:
    world = Scrubbed()
    for nid in (1, 2):
        node = world.master.nodes.get(nid)
        assert node is not None
        node.features = frozenset()
    nid, partition = world.begin()
    world.storages[nid - 1].send(NotifyPartitionCorrupted(partition, [1, 2]))
    assert world.rows()[partition][0] == "undecided"
    world.host.advance(SLOT)
    assert [question.partition for _, question in world.take()] == [1]
    assert world.admin().ask(AskScrub()).result().compared == 1


def test_it_ends_with_the_operation_and_goes_on_with_the_next() -> None:
    world = Scrubbed()
    world.begin()
    for storage in world.storages:
        storage.lose()
    assert world.master.cluster.state is ClusterState.RECOVERING
    assert not world.master.checks.scrubbing


def test_a_stopping_cluster_is_left_alone() -> None:
    world = Scrubbed()
    world.client()
    world.admin().ask(SetClusterState(ClusterState.STOPPING)).result()
    assert world.pass_by(SLOT) == []


def test_strangers_may_not_ask() -> None:
    world = Scrubbed()
    assert error_of(world.client().ask(AskScrub())).code is not ErrorCode.ACK
