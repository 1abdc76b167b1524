"""The messages of protocol version 1 and of its extensions: codes, arguments and types, in one table.

A message is a :class:`Message` whose fields are its arguments in the order of the wire. ``@request``
declares the code of a request, whose base names the message that answers it: that one has the same code
with the high bit set. ``@notification`` declares the code of a message without answer. The annotations
are the types on the wire, with lengths and ranges: :mod:`neo.protocol.codec` encodes, decodes and checks
from them. Texts (names, host names, error messages) are UTF-8 ``str`` here and MessagePack *bin* there.

Links (specification 1.3, 1.4): M primary master, SM secondary master, S storage, C client, A admin,
ctl the command line. ``M ⇄ S`` is a request of M to S, ``M → S`` a notification.

Messages from 0x4000 up are extensions: used only between nodes that both announced the feature in the
``extra`` properties of RequestIdentification (specification 21).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar, dataclass_transform, get_args

from msgspec import Meta, Struct

from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.ids import XID_MAX

#: ``bin`` of exactly 8 bytes, big-endian.
Oid = Annotated[bytes, Meta(min_length=8, max_length=8)]
Tid = Annotated[bytes, Meta(min_length=8, max_length=8)]
#: ``bin`` of exactly 20 bytes: SHA-1.
Checksum = Annotated[bytes, Meta(min_length=20, max_length=20)]
#: A node id: 32 bits, of which the high-order byte is the type of the node.
Nid = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
#: The number of a partition, a length, an index, a code.
Count = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
#: A number that databases keep in a signed column of 64 bits: ptid, size, position in a history.
Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
#: The log of several masters counts with 64 bits, unsigned: up to the greatest integer of MessagePack.
Unsigned = Annotated[int, Meta(ge=0)]
#: What an operator typed. The node that it is for refuses a wrong number in words.
Typed = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
#: A number of seconds; neither infinite nor NaN. An integer on the wire is accepted.
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
#: How a record is compressed: a column of 8 bits.
Compression = Annotated[int, Meta(ge=0, le=255)]
#: (IP literal without brackets, port)
Address = tuple[str, Annotated[int, Meta(ge=0, le=65535)]]
#: Keys are texts; values depend on the key: specification 3.3, 21.8.
Extra = dict[str, Any]

NodeRow = tuple[NodeType, Address | None, Nid | None, NodeState, Finite | None]
CellRow = tuple[Nid, CellState]
CellChange = tuple[Count, Nid, CellState]
StoredData = tuple[Compression, Checksum, bytes]
Conflict = tuple[Tid, Tid, StoredData | None]

RESPONSE = 0x8000
#: First code of messages that are not in protocol version 1.
EXTENSION = 0x4000


@dataclass_transform(frozen_default=True)
class Message(Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """Base of all messages. The garbage collector ignores them: a message refers to no message."""


class Answer(Message):
    """Base of the messages that answer a request."""


#: The message that answers a request.
A = TypeVar("A", bound=Answer, covariant=True)
_Request = TypeVar("_Request", bound="type[Request[Any]]")
_Class = TypeVar("_Class", bound=type[Message])


class Request(Message, Generic[A]):
    """Base of the requests that ``A`` answers."""


#: Every message class by its code on the wire. Filled at import, never changed afterwards.
BY_CODE: dict[int, type[Message]] = {}
#: The code on the wire of every message class.
CODES: dict[type[Message], int] = {}
#: The class that answers a request.
ANSWERS: dict[type[Message], type[Answer]] = {}


def _register(code: int, cls: type[Message]) -> None:
    assert code not in BY_CODE, f"{cls.__name__} and {BY_CODE[code].__name__} share {code:#x}"
    BY_CODE[code] = cls
    CODES[cls] = code


def request(code: int) -> Callable[[_Request], _Request]:
    """Declare the code of a request, and of its answer unless that is Error."""

    def decorate(cls: _Request) -> _Request:
        (answer,) = get_args(vars(cls)["__orig_bases__"][0])
        _register(code, cls)
        if answer is not Error:
            _register(code | RESPONSE, answer)
        ANSWERS[cls] = answer
        return cls

    return decorate


def notification(code: int) -> Callable[[_Class], _Class]:
    """Declare the code of a message that is not answered."""

    def decorate(cls: _Class) -> _Class:
        _register(code, cls)
        return cls

    return decorate


# -- any node -------------------------------------------------------------------------------------


@notification(0 | RESPONSE)
class Error(Answer):
    """Answer to any request: refusal, or ACK of those without an answer of their own. * → *

    ``code`` is the number of an ErrorCode, as a plain integer.
    """

    code: Count
    message: str


class AcceptIdentification(Answer):
    """``your_nid``: the id given by the master, else an echo of ``nid``."""

    node_type: NodeType
    nid: Nid | None
    your_nid: Nid | None


@request(1)
class RequestIdentification(Request[AcceptIdentification]):
    """First message of any connection but those of ctl. * ⇄ *

    ``id_timestamp``: nil towards the master, except between masters during the election.
    """

    node_type: NodeType
    nid: Nid | None
    address: Address | None
    name: str
    id_timestamp: Finite | None
    extra: Extra


class Pong(Answer):
    pass


@request(2)
class Ping(Request[Pong]):
    """Network barrier; answered even before identification. * ⇄ *"""


@notification(3)
class CloseClient(Message):
    """The sender is finished with the receiver as a server; the receiver may close. S → S"""


class AnswerPrimary(Answer):
    primary_nid: Nid


@request(4)
class AskPrimary(Request[AnswerPrimary]):
    """Node id of the primary master. ctl ⇄ A"""


@notification(5)
class NotPrimaryMaster(Message):
    """``primary`` is an index into ``known_master_list``, nil if unknown. SM → *"""

    primary: Count | None
    known_master_list: list[Address]


@notification(6)
class NotifyNodeInformation(Message):
    """New state of nodes; UNKNOWN: forget it. M → *

    ``timestamp`` is strictly increasing. A node that identifies with a later one must wait.
    """

    timestamp: Finite
    node_list: list[NodeRow]


# -- recovery and verification --------------------------------------------------------------------


class AnswerRecovery(Answer):
    ptid: Number | None
    backup_tid: Tid | None
    truncate_tid: Tid | None


@request(7)
class AskRecovery(Request[AnswerRecovery]):
    """What a storage knows of the last time it was operational. M ⇄ S, ctl ⇄ A ⇄ M"""


class AnswerLastIDs(Answer):
    loid: Oid | None
    ltid: Tid | None


@request(8)
class AskLastIDs(Request[AnswerLastIDs]):
    """Greatest oid and tid; a storage truncates first if it was told to. M ⇄ S, ctl ⇄ A ⇄ M"""


class AnswerPartitionTable(Answer):
    ptid: Number | None
    num_replicas: Count
    row_list: list[list[CellRow]]


@request(9)
class AskPartitionTable(Request[AnswerPartitionTable]):
    """The partition table that a storage remembers. M ⇄ S"""


@notification(10)
class SendPartitionTable(Message):
    """The whole table; ptid nil and empty rows during RECOVERING. M → A, C, S"""

    ptid: Number | None
    num_replicas: Count
    row_list: list[list[CellRow]]


@notification(11)
class NotifyPartitionChanges(Message):
    """``ptid`` is the previous one plus 1. M → A, C, S"""

    ptid: Number
    num_replicas: Count
    cell_list: list[CellChange]


@notification(12)
class StartOperation(Message):
    """Talk to other nodes than the master from now on. M → S"""

    backup: bool


@notification(13)
class StopOperation(Message):
    """The cluster is not operational any more. M → S, C"""


class AnswerUnfinishedTransactions(Answer):
    max_tid: Tid
    ttid_list: list[Tid]


@request(14)
class AskUnfinishedTransactions(Request[AnswerUnfinishedTransactions]):
    """What must end before these outdated partitions can be complete. S ⇄ M"""

    offset_list: list[Count]


class AnswerLockedTransactions(Answer):
    tid_dict: dict[Tid, Tid | None]


@request(15)
class AskLockedTransactions(Request[AnswerLockedTransactions]):
    """Voted transactions: ttid → final tid, nil if it is not locked. M ⇄ S"""


class AnswerFinalTID(Answer):
    tid: Tid | None


@request(16)
class AskFinalTID(Request[AnswerFinalTID]):
    """The tid under which ttid was committed, nil if it was not. M ⇄ S, C ⇄ M, S"""

    ttid: Tid


@notification(17)
class ValidateTransaction(Message):
    """Finish a transaction that was interrupted in tpc_finish. M → S"""

    ttid: Tid
    tid: Tid


# -- two-phase commit -----------------------------------------------------------------------------


class AnswerBeginTransaction(Answer):
    ttid: Tid


@request(18)
class AskBeginTransaction(Request[AnswerBeginTransaction]):
    """tpc_begin; ``tid`` as in IStorageRestoreable. C ⇄ M"""

    tid: Tid | None


@request(19)
class FailedVote(Request[Error]):
    """Storage nodes that did not vote; ACK: go on without them. C ⇄ M"""

    ttid: Tid
    failed: list[Nid]


class AnswerTransactionFinished(Answer):
    ttid: Tid
    tid: Tid


@request(20)
class AskFinishTransaction(Request[AnswerTransactionFinished]):
    """tpc_finish. C ⇄ M"""

    ttid: Tid
    stored_list: list[Oid]
    checked_list: list[Oid]


class AnswerInformationLocked(Answer):
    ttid: Tid


@request(21)
class AskLockInformation(Request[AnswerInformationLocked]):
    """Lock for reading, and remember the final tid durably. M ⇄ S"""

    ttid: Tid
    tid: Tid


@notification(22)
class InvalidateObjects(Message):
    """A transaction of another client was committed. M → C"""

    tid: Tid
    oid_list: list[Oid]


@notification(23)
class NotifyUnlockInformation(Message):
    """Make the transaction visible and release its locks. M → S"""

    ttid: Tid


class AnswerNewOIDs(Answer):
    oid_list: list[Oid]


@request(24)
class AskNewOIDs(Request[AnswerNewOIDs]):
    """Ids for new objects. C ⇄ M"""

    num_oids: Count


@notification(25)
class NotifyDeadlock(Message):
    """S → M: its current locking tid. M → C: the new one, to rebase with."""

    ttid: Tid
    locking_tid: Tid


class AnswerRebaseTransaction(Answer):
    oid_list: list[Oid]


@request(26)
class AskRebaseTransaction(Request[AnswerRebaseTransaction]):
    """Give up all locks and queue again with a new locking tid. C ⇄ S"""

    ttid: Tid
    locking_tid: Tid


class AnswerRebaseObject(Answer):
    conflict: Conflict | None


@request(27)
class AskRebaseObject(Request[AnswerRebaseObject]):
    """Lock an object again; on conflict its data comes back. C ⇄ S"""

    ttid: Tid
    oid: Oid


class AnswerStoreObject(Answer):
    """nil: locked; ZERO_TID: accepted without a lock; else the serial in conflict."""

    locked: Tid | None


@request(28)
class AskStoreObject(Request[AnswerStoreObject]):
    """store, undo, deleteObject. C ⇄ S"""

    oid: Oid
    serial: Tid
    compression: Compression
    checksum: Checksum
    data: bytes
    data_serial: Tid | None
    ttid: Tid


@notification(29)
class AbortTransaction(Message):
    """``nid_list``: involved storages, for the master; empty to a storage. C → S, C → M → S"""

    ttid: Tid
    nid_list: list[Nid]


class AnswerStoreTransaction(Answer):
    pass


@request(30)
class AskStoreTransaction(Request[AnswerStoreTransaction]):
    """Vote, with the metadata of the transaction. C ⇄ S"""

    ttid: Tid
    user: bytes
    description: bytes
    extension: bytes
    oid_list: list[Oid]


class AnswerVoteTransaction(Answer):
    pass


@request(31)
class AskVoteTransaction(Request[AnswerVoteTransaction]):
    """Vote, for nodes that do not keep the metadata. C ⇄ S"""

    ttid: Tid


# -- reads ----------------------------------------------------------------------------------------


class AnswerObject(Answer):
    """compression nil: the creation of the object was undone."""

    oid: Oid
    serial: Tid
    next_serial: Tid | None
    compression: Compression | None
    checksum: Checksum
    data: bytes
    data_serial: Tid | None


@request(32)
class AskObject(Request[AnswerObject]):
    """load, loadBefore, loadSerial; ``at`` wins over ``before``. C ⇄ S"""

    oid: Oid
    at: Tid | None
    before: Tid | None


class AnswerTIDs(Answer):
    tid_list: list[Tid]


@request(33)
class AskTIDs(Request[AnswerTIDs]):
    """[first, last) of the tids in descending order, for undoLog. C ⇄ S"""

    first: Number
    last: Number
    partition: Count


class AnswerTransactionInformation(Answer):
    tid: Tid
    user: bytes
    description: bytes
    extension: bytes
    packed: bool
    oid_list: list[Oid]


@request(34)
class AskTransactionInformation(Request[AnswerTransactionInformation]):
    """Metadata of a committed transaction. C ⇄ S"""

    tid: Tid


class AnswerObjectHistory(Answer):
    oid: Oid
    history_list: list[tuple[Tid, Number]]


@request(35)
class AskObjectHistory(Request[AnswerObjectHistory]):
    """[first, last) of (serial, stored size), newest first. C ⇄ S"""

    oid: Oid
    first: Number
    last: Number


# -- administration -------------------------------------------------------------------------------


class AnswerPartitionList(Answer):
    ptid: Number | None
    num_replicas: Count
    row_list: list[list[CellRow]]


@request(36)
class AskPartitionList(Request[AnswerPartitionList]):
    """Rows [min_offset, max_offset), 0 for the end; nid is ignored. ctl ⇄ A"""

    min_offset: Typed
    max_offset: Typed
    nid: Typed | None


class AnswerNodeList(Answer):
    node_list: list[NodeRow]


@request(37)
class AskNodeList(Request[AnswerNodeList]):
    """The nodes of a type, or all. ctl ⇄ A"""

    node_type: NodeType | None


@request(38)
class SetNodeState(Request[Error]):
    """DOWN: kill; UNKNOWN: drop. ctl ⇄ A ⇄ M"""

    nid: Typed
    state: NodeState


@request(39)
class AddPendingNodes(Request[Error]):
    """PENDING storages become RUNNING. ctl ⇄ A ⇄ M"""

    nid_list: list[Typed]


class AnswerTweakPartitionTable(Answer):
    changed: bool
    row_list: list[list[CellRow]]


@request(40)
class TweakPartitionTable(Request[AnswerTweakPartitionTable]):
    """Balance the table, emptying the listed nodes. ctl ⇄ A ⇄ M"""

    dry_run: bool
    drop_nid_list: list[Typed]


@request(41)
class SetNumReplicas(Request[Error]):
    """How many copies besides the first one a partition shall have. ctl ⇄ A ⇄ M"""

    num_replicas: Typed


@request(42)
class SetClusterState(Request[Error]):
    """Start, stop, enter or leave standby mode. ctl ⇄ A ⇄ M"""

    state: ClusterState


@request(43)
class Repair(Request[Error]):
    """Look for orphan data, and delete it unless ``dry_run``. ctl ⇄ A ⇄ M"""

    nid_list: list[Typed]
    dry_run: bool


@notification(44)
class NotifyRepair(Message):
    """Look for orphan data, and delete it unless ``dry_run``. M → S"""

    dry_run: bool


@notification(45)
class NotifyClusterInformation(Message):
    """The cluster is in another state. M → *"""

    state: ClusterState


class AnswerClusterState(Answer):
    state: ClusterState | None


@request(46)
class AskClusterState(Request[AnswerClusterState]):
    """The state of the cluster; nil before an admin knows it. ctl ⇄ A, A ⇄ M"""


class AnswerObjectUndoSerial(Answer):
    """oid → (current_serial, undo_serial, is_current); oids that were not touched are left out."""

    undo_dict: dict[Oid, tuple[Tid, Tid | None, bool]]


@request(47)
class AskObjectUndoSerial(Request[AnswerObjectUndoSerial]):
    """Where the data is that undoing a transaction brings back. C ⇄ S

    ``max_tid``: excluded upper bound of what the client sees.
    """

    ttid: Tid
    max_tid: Tid
    undone_tid: Tid
    oid_list: list[Oid]


class AnswerTIDsFrom(Answer):
    tid_list: list[Tid]


@request(48)
class AskTIDsFrom(Request[AnswerTIDsFrom]):
    """At most ``length`` tids of a partition, ascending, both bounds included. C ⇄ S"""

    min_tid: Tid
    max_tid: Tid
    length: Count
    partition: Count


class AnswerPack(Answer):
    status: bool


@request(49)
class AskPack(Request[AnswerPack]):
    """Forget revisions that are not current at tid; false: one is running. C ⇄ M ⇄ S"""

    tid: Tid


@request(50)
class CheckReplicas(Request[Error]):
    """partition → reference node or nil. ctl ⇄ A ⇄ M"""

    partition_dict: dict[Typed, Typed | None]
    min_tid: Tid
    max_tid: Tid | None


@notification(51)
class CheckPartition(Message):
    """Compare a partition; ``source``: (upstream cluster or '', address or nil). M → S"""

    partition: Count
    source: tuple[str, Address | None]
    min_tid: Tid
    max_tid: Tid


class AnswerCheckTIDRange(Answer):
    count: Count
    tid_checksum: Checksum
    max_tid: Tid


@request(52)
class AskCheckTIDRange(Request[AnswerCheckTIDRange]):
    """Digest of the transactions of a range. S ⇄ S"""

    partition: Count
    length: Count
    min_tid: Tid
    max_tid: Tid


class AnswerCheckSerialRange(Answer):
    count: Count
    tid_checksum: Checksum
    max_tid: Tid
    oid_checksum: Checksum
    max_oid: Oid


@request(53)
class AskCheckSerialRange(Request[AnswerCheckSerialRange]):
    """Digest of the object records of a range. S ⇄ S"""

    partition: Count
    length: Count
    min_tid: Tid
    max_tid: Tid
    min_oid: Oid


@notification(54)
class NotifyPartitionCorrupted(Message):
    """These nodes' cells differ from the reference. S → M"""

    partition: Count
    nid_list: list[Nid]


@notification(55)
class NotifyReady(Message):
    """StartOperation is done: clients may come. S → M"""


class AnswerLastTransaction(Answer):
    tid: Tid


@request(56)
class AskLastTransaction(Request[AnswerLastTransaction]):
    """Last committed tid. C ⇄ M, ctl ⇄ A ⇄ M"""


class AnswerCheckCurrentSerial(Answer):
    """As AnswerStoreObject."""

    locked: Tid | None


@request(57)
class AskCheckCurrentSerial(Request[AnswerCheckCurrentSerial]):
    """checkCurrentSerialInTransaction. C ⇄ S"""

    ttid: Tid
    oid: Oid
    serial: Tid


# -- replication ----------------------------------------------------------------------------------


@notification(58)
class NotifyTransactionFinished(Message):
    """A transaction of AnswerUnfinishedTransactions, or of before the node came, is committed. M → S"""

    ttid: Tid
    max_tid: Tid


@notification(59)
class Replicate(Message):
    """Fetch from upstream: partition → address, nil: nothing to fetch. M → S"""

    tid: Tid
    upstream_name: str
    source_dict: dict[Count, Address | None]


@notification(60)
class NotifyReplicationDone(Message):
    """A cell is complete up to ``max_tid``. S → M"""

    partition: Count
    max_tid: Tid


class AnswerFetchTransactions(Answer):
    pack_tid: None
    next_tid: Tid | None
    delete_list: list[Tid]


@request(61)
class AskFetchTransactions(Request[AnswerFetchTransactions]):
    """Send what is missing in ``tid_list``, which the asker has. S ⇄ S"""

    partition: Count
    length: Count
    min_tid: Tid
    max_tid: Tid
    tid_list: list[Tid]


class AnswerFetchObjects(Answer):
    pack_tid: None
    next_tid: Tid | None
    next_oid: Oid | None
    delete_dict: dict[Tid, list[Oid]]


@request(62)
class AskFetchObjects(Request[AnswerFetchObjects]):
    """Send what is missing in ``object_dict``: tid → oids that the asker has. S ⇄ S"""

    partition: Count
    length: Count
    min_tid: Tid
    max_tid: Tid
    min_oid: Oid
    object_dict: dict[Tid, list[Oid]]


@notification(63)
class AddTransaction(Message):
    """A replicated transaction; carries the id of its AskFetchTransactions. S → S"""

    tid: Tid
    user: bytes
    description: bytes
    extension: bytes
    packed: bool
    ttid: Tid
    oid_list: list[Oid]


@notification(64)
class AddObject(Message):
    """A replicated record; carries the id of its AskFetchObjects. S → S"""

    oid: Oid
    tid: Tid
    compression: Compression
    checksum: Checksum
    data: bytes
    data_serial: Tid | None


@request(65)
class Truncate(Request[Error]):
    """Everything after tid will be deleted. ctl ⇄ A ⇄ M, M → S (not answered)"""

    tid: Tid


@notification(66)
class FlushLog(Message):
    """Write out logs, and open log files again. ctl → A → M → *"""


class AnswerMonitorInformation(Answer):
    """Names of backup clusters, nil for the cluster itself."""

    warning_list: list[str | None]
    problem_list: list[str | None]
    summary: str


@request(67)
class AskMonitorInformation(Request[AnswerMonitorInformation]):
    """State of the cluster and of its backups, for people. ctl ⇄ A"""


@notification(68)
class NotifyMonitorInformation(Message):
    """State of a backup cluster, to the admin of its upstream. A → A"""

    info: Extra


@notification(69)
class NotifyUpstreamAdmin(Message):
    """Where the admin of the upstream cluster is. M → A"""

    address: Address


# -- ours: only between nodes that both announced the feature -----------------------------------

#: Key of RequestIdentification.extra: a list of the names of the features that the sender knows.
FEATURES = "features"
#: Key of RequestIdentification.extra: a number of partitions. A clone sends that of its database; a
#: storage node of a backup sends that of its cluster to nodes of the upstream cluster.
PARTITIONS = "partitions"
#: All messages from here on are understood, but those of contents of blobs.
FEATURE_OURS = "neo"
#: The messages of contents of blobs are understood (specification 26). A storage node announces it to
#: all but masters of other clusters if it has a folder for contents.
FEATURE_BLOBS = "blobs"
#: Traces are exported (specification 17.52). A master or storage node with the setting ``tracing``
#: announces it.
FEATURE_TRACE = "trace"
#: Figures of clients' caches are told (specification 17.65). Clients and masters announce it.
FEATURE_CACHES = "caches"
#: A master finishes transactions one after the other as a client wishes (specification 7.68), and storage
#: nodes hear which aborted transactions may begin again (7.71).
FEATURE_CHAINS = "chains"
#: Key of a storage node's RequestIdentification.extra: a boolean, whether its database has no cells.
BLANK = "blank"
#: Key of the same: the greatest id of a storage node that the node ever heard of. No master gives an id
#: up to that one again.
GREATEST_NID = "greatest_nid"


@notification(EXTENSION | 0)
class NotifyFeatures(Message):
    """Features of the server, to a peer that announced its own; beside AcceptIdentification. * → *"""

    features: list[str]


class AnswerOIDs(Answer):
    oid_list: list[Oid]


@request(EXTENSION | 1)
class AskOIDs(Request[AnswerOIDs]):
    """At most ``length`` oids of a partition from ``min_oid``, ascending. C ⇄ S"""

    partition: Count
    min_oid: Oid
    length: Count


#: (oid, tid, compression or nil where the object does not exist, SHA-1, size as stored, data as stored
#: or nil where it was not asked, serial that an undo went back to)
RevisionRow = tuple[Oid, Tid, Compression | None, Checksum, Number, bytes | None, Tid | None]


class AnswerRevisions(Answer):
    """``more``: the page after its last revision is not empty, as far as the node knows."""

    revision_list: list[RevisionRow]
    more: bool


@request(EXTENSION | 2)
class AskRevisions(Request[AnswerRevisions]):
    """A page of the revisions of a partition, for readers of everything. C ⇄ S

    ``order`` 0: of each object the last revision up to ``max_tid``, by oid. 1: all from ``min_tid`` to
    ``max_tid``, by (oid, tid). 2: the same, by (tid, oid). The page begins after ``after``, (oid, tid),
    and ends with the record that makes it ``max_bytes`` long. Refused with TID_NOT_FOUND where a pack
    may have removed what belongs there.
    """

    partition: Count
    order: Count
    min_tid: Tid
    max_tid: Tid
    after: tuple[Oid, Tid] | None
    max_bytes: Count
    data: bool


@notification(EXTENSION | 3)
class NotifyPack(Message):
    """The cluster was packed at this tid; follows also AcceptIdentification. M → C"""

    tid: Tid


class AnswerPackState(Answer):
    """``tid``: of the last pack that was asked for."""

    tid: Tid


@request(EXTENSION | 0x10)
class AskPackState(Request[AnswerPackState]):
    """At which tid a readable cell is packed, or will be. Meanwhile, to fetch what is not later is
    refused. S ⇄ S"""

    partition: Count


@notification(EXTENSION | 0x11)
class NotifyPartitionChecked(Message):
    """CheckPartition is over. ``problem``: why cells could not be compared, or ''. S → M"""

    partition: Count
    problem: str


class AnswerCheckReport(Answer):
    """Of the last check: range, and by partition: (partition, checked by, state, explanation)."""

    min_tid: Tid
    max_tid: Tid
    row_list: list[tuple[Count, Nid | None, str, str]]


@request(EXTENSION | 0x12)
class AskCheckReport(Request[AnswerCheckReport]):
    """What was found by the last check of replicas. ctl ⇄ A ⇄ M"""


@request(EXTENSION | 0x13)
class RepairCells(Request[Error]):
    """Copy CORRUPTED cells (partition, node) anew from a good replica. In a backup, also: give its last
    cell of a partition what it lacks of the upstream cluster. ctl ⇄ A ⇄ M"""

    cell_list: list[tuple[Typed, Typed]]


@notification(EXTENSION | 0x14)
class MendCell(Message):
    """Make a readable cell of a backup equal to one of the upstream cluster, up to ``max_tid``;
    ``source``: (upstream cluster, address). NotifyPartitionChecked tells the end. M → S"""

    partition: Count
    source: tuple[str, Address]
    max_tid: Tid


@notification(EXTENSION | 0x20)
class NotifyLogState(Message):
    """How the sender is with the log. M → M

    ``journal``: the name of its journal, a random number. ``genesis``: a digest of the first members,
    empty while it does not know them. ``journal_list``: the masters, with the names of their journals as
    far as it knows (0 if not): all members if ``begun``, else those that it has heard.
    """

    journal: Unsigned
    begun: bool
    genesis: bytes
    journal_list: list[tuple[Address, Unsigned]]


@notification(EXTENSION | 0x21)
class NotifyLog(Message):
    """Messages of the transactor. M → M"""

    message_list: list[bytes]


@notification(EXTENSION | 0x22)
class NotifyLease(Message):
    """The primary of ``epoch`` asks for its lease at ``sent``, seconds of its own clock. ``serving``: it
    has it, and serves. M → M"""

    epoch: Number
    sent: Finite
    serving: bool


@notification(EXTENSION | 0x23)
class NotifyLeaseGranted(Message):
    """Follows NotifyLease. ``age``: seconds since the sender granted the lease of an earlier epoch for
    the last time, at least. M → M"""

    epoch: Number
    sent: Finite
    age: Finite


@notification(EXTENSION | 0x24)
class NotifySuspicion(Message):
    """The sender does not hear the primary of ``epoch``. M → M"""

    epoch: Number


@request(EXTENSION | 0x25)
class SetPrimary(Request[Error]):
    """The primary master hands over to another one. ctl ⇄ A ⇄ M"""

    nid: Typed


#: (id, address, role, last transaction of its log, what is to be known about it)
MasterRow = tuple[Nid, Address, str, Unsigned, str]


class AnswerElection(Answer):
    """``lease``: seconds for which the primary may serve without hearing from the others. ``tid``: the
    last transaction of the log. ``ptid``: the newest partition table in it."""

    epoch: Number
    lease: Finite
    tid: Unsigned
    ptid: Number | None
    master_list: list[MasterRow]


@request(EXTENSION | 0x26)
class AskElection(Request[AnswerElection]):
    """Epoch, lease and log of several masters; refused by a master that is alone. ctl ⇄ A ⇄ M"""


@request(EXTENSION | 0x27)
class ForgetTable(Request[Error]):
    """The partition table ``ptid`` is lost for ever, and what was committed with it: the cluster may
    start with an older one. ctl ⇄ A ⇄ M"""

    ptid: Typed


#: Rows of a tail, each of transactions and of revisions. Replication looks back as far, so that a cell
#: that was found to lack one of them gets it.
TAIL_LENGTH = 100

#: See AnswerTails.
TailRow = tuple[Count, bool, list[Tid], list[tuple[Tid, Oid]]]


class AnswerTails(Answer):
    """(partition, proven, last transactions, (tid, oid) of the last revisions), both ascending; proven:
    the node has had all of the partition, as far as it knows. ``pack_tid``: revisions up to it may be
    gone."""

    pack_tid: Tid
    tail_list: list[TailRow]


@request(EXTENSION | 0x70)
class AskTails(Request[AnswerTails]):
    """What a storage node has last of these partitions, up to ``max_tid`` if it is given: at most
    ``length`` transactions, and as many revisions. M ⇄ S"""

    partition_list: list[Count]
    max_tid: Tid | None
    length: Count


@notification(EXTENSION | 0x71)
class NotifyCellsBehind(Message):
    """During a check, before NotifyPartitionCorrupted: these cells have a prefix of what ``nid`` has. By
    node: the tid from which on it lacks rows, and at least how many; ``revisions``: not transactions.
    S → M"""

    partition: Count
    nid: Nid
    revisions: bool
    behind_dict: dict[Nid, tuple[Tid, Count]]


class AnswerUpstream(Answer):
    """``cluster``: its name, empty if none is configured. ``seconds``: since it was heard, or since it is
    looked for if it never was (``ever``); nil while it is heard. ``reason``: why not, for people."""

    cluster: str
    seconds: Finite | None
    ever: bool
    reason: str


@request(EXTENSION | 0xB0)
class AskUpstream(Request[AnswerUpstream]):
    """Whether a backup hears its upstream cluster; refused by a cluster that is no backup. ctl ⇄ A ⇄ M"""


class AnswerObstacle(Answer):
    """``reason``: why the cluster does not start by itself. ``forced``: why it would not if the operator
    asked it to start; empty if it would."""

    reason: str
    forced: str


@request(EXTENSION | 0xB1)
class AskObstacle(Request[AnswerObstacle]):
    """What a cluster in RECOVERING waits for; refused in other states. ctl ⇄ A ⇄ M"""


class AnswerDownNodes(Answer):
    """(id, what it says) of those that answer the admin node; empty: it runs, and says nothing."""

    node_list: list[tuple[Nid, str]]


@request(EXTENSION | 0xB2)
class AskDownNodes(Request[AnswerDownNodes]):
    """What storage nodes that are DOWN for the master say themselves, each at its address. ctl ⇄ A"""


#: (ttid, its client, address of the client's connection or nil if it is lost, seconds since the
#: transaction began on the node, phase: storing, waiting, voted or locked)
HolderRow = tuple[Tid, Nid, Address | None, Finite, str]


class AnswerLockHolders(Answer):
    """``waited``: seconds since the request is delayed, 0 for reads; nil if none is delayed now."""

    waited: Finite | None
    holder_list: list[HolderRow]


@request(EXTENSION | 0x90)
class AskLockHolders(Request[AnswerLockHolders]):
    """Which transactions delay a store, check or rebase of ``ttid``; if it is zero, a read. C ⇄ S"""

    ttid: Tid
    oid: Oid


#: (ttid, its client, phase as in HolderRow, transactions that wait for it, seconds that the first of
#: these has waited)
LockRow = tuple[Tid, Nid, str, list[Tid], Finite]


class AnswerLocks(Answer):
    row_list: list[LockRow]


@request(EXTENSION | 0x91)
class AskLocks(Request[AnswerLocks]):
    """The transactions in progress on a storage node, and the ones that wait for them. M ⇄ S"""


#: (ttid, its client, address of the client's connection or nil if it is lost, seconds since it began,
#: phase, how many transactions wait for it, seconds that the first of these has waited). Phases are
#: ``begun``, those of HolderRow, ``prepared``, ``finishing`` and ``ended``. The client of one that an
#: earlier master prepared is the master.
TransactionRow = tuple[Tid, Nid, Address | None, Finite, str, Count, Finite]


class AnswerTransactions(Answer):
    row_list: list[TransactionRow]


@request(EXTENSION | 0x92)
class AskTransactions(Request[AnswerTransactions]):
    """The open transactions of the cluster. ctl ⇄ A ⇄ M"""


@request(EXTENSION | 0x93)
class EndTransaction(Request[Error]):
    """Abort a transaction that is not being finished yet, whatever its client does. ctl ⇄ A ⇄ M"""

    ttid: Tid


@notification(EXTENSION | 0x94)
class NotifyTransactionEnded(Message):
    """The operator ended this transaction: it cannot be committed. M → C"""

    ttid: Tid


class AnswerSize(Answer):
    """``size``: bytes of the node's database, which has ``cells`` cells. ``objects``: about how many
    objects ``partitions`` of the node's readable cells have together."""

    size: Number
    cells: Count
    objects: Number
    partitions: Count


@request(EXTENSION | 0x95)
class AskSize(Request[AnswerSize]):
    """How large the node's database is. Measured once a minute at most. C ⇄ S"""


class AnswerScrub(Answer):
    """``period``: seconds in which all copies are compared once, 0 if they are not. ``begun``: when this
    master began; ``round_end``: when it had compared all for the last time, seconds since 1970.
    ``compared``: the partitions of the present round that are done."""

    period: Finite
    begun: Finite
    round_end: Finite | None
    compared: Count


@request(EXTENSION | 0xA0)
class AskScrub(Request[AnswerScrub]):
    """How far the comparison of copies in the background is. ctl ⇄ A ⇄ M"""


#: With these words a storage node begins the refusal of a step that waited too long for an object of a
#: prepared transaction (specification 24.9).
PREPARED_WORDS = "prepared: "

#: The name that a coordinator gives to a transaction.
Xid = Annotated[bytes, Meta(min_length=1, max_length=XID_MAX)]
#: User and description of a transaction, for people.
PreparedText = Annotated[bytes, Meta(min_length=0, max_length=1000)]


class AnswerPrepareTransaction(Answer):
    """The transaction is prepared: it outlives its client and every node."""


@request(EXTENSION | 0x40)
class AskPrepareTransaction(Request[AnswerPrepareTransaction]):
    """Keep a voted transaction until a coordinator commits it or rolls it back. C ⇄ M"""

    ttid: Tid
    xid: Xid
    stored_list: list[Oid]
    checked_list: list[Oid]
    text: PreparedText


class AnswerPrepareInformation(Answer):
    """The mark is durable."""

    ttid: Tid


@request(EXTENSION | 0x41)
class AskPrepareInformation(Request[AnswerPrepareInformation]):
    """Mark a voted transaction as prepared. ``since``: seconds since 1970, by the master's clock.
    ``partition_list``: all partitions of its objects and of its metadata. M ⇄ S"""

    ttid: Tid
    xid: Xid
    since: Finite
    text: PreparedText
    partition_list: list[Count]


#: (ttid, xid, since, text, all its partitions, oids that the node stores for it, oids that it checks)
PreparedMark = tuple[Tid, Xid, Finite, PreparedText, list[Count], list[Oid], list[Oid]]
#: (xid, ttid, tid or nil if it was rolled back, when: seconds since 1970)
DecidedRow = tuple[Xid, Tid, Tid | None, Finite]


class AnswerPreparedTransactions(Answer):
    mark_list: list[PreparedMark]
    decided_list: list[DecidedRow]


@request(EXTENSION | 0x42)
class AskPreparedTransactions(Request[AnswerPreparedTransactions]):
    """The marks of prepared transactions, and the outcomes that the node remembers. M ⇄ S"""


class AnswerFinishPrepared(Answer):
    """``tid``: of the commit; nil: the transaction is rolled back."""

    tid: Tid | None


@request(EXTENSION | 0x43)
class AskFinishPrepared(Request[AnswerFinishPrepared]):
    """Commit a prepared transaction, or roll it back. May be repeated. C ⇄ M, ctl ⇄ A ⇄ M"""

    xid: Xid
    commit: bool


#: (xid, ttid, tid if it is committed, since when: seconds since 1970, number of objects that it stores
#: and checks, text, state: prepared, committing, rolling back, committed or rolled back)
PreparedRow = tuple[Xid, Tid, Tid | None, Finite, Count, PreparedText, str]


class AnswerPrepared(Answer):
    """All prepared transactions, then remembered outcomes, the newest first."""

    row_list: list[PreparedRow]


@request(EXTENSION | 0x44)
class AskPrepared(Request[AnswerPrepared]):
    """Prepared transactions and at most ``length`` remembered outcomes, or only what has this xid.
    C ⇄ M, ctl ⇄ A ⇄ M"""

    length: Count
    xid: Xid | None


@request(EXTENSION | 0x45)
class ForgetPrepared(Request[Error]):
    """Forget the outcome of a transaction: its coordinator will not ask again. Answered when that is
    durable. C ⇄ M, ctl ⇄ A ⇄ M, M ⇄ S"""

    xid: Xid


class AnswerFetchPrepared(Answer):
    """``ttid_list``: the transactions that were sent. ``decided_list``: remembered outcomes of
    transactions whose metadata is in the partition."""

    ttid_list: list[Tid]
    decided_list: list[DecidedRow]


@request(EXTENSION | 0x46)
class AskFetchPrepared(Request[AnswerFetchPrepared]):
    """Send the rows of these prepared transactions that belong to a partition. S ⇄ S"""

    partition: Count
    ttid_list: list[Tid]


#: (user, description, extension, oids of the transaction)
PreparedMetadata = tuple[bytes, bytes, bytes, list[Oid]]


@notification(EXTENSION | 0x47)
class AddPrepared(Message):
    """A prepared transaction, in answer to AskFetchPrepared. ``metadata``: if the partition keeps it.
    ``checked_list``: (oid, serial) in this partition. S → S"""

    ttid: Tid
    xid: Xid
    since: Finite
    text: PreparedText
    partition_list: list[Count]
    metadata: PreparedMetadata | None
    checked_list: list[tuple[Oid, Tid]]


@notification(EXTENSION | 0x48)
class AddPreparedObject(Message):
    """An object of the transaction of the last AddPrepared; the fields are those of AddObject. S → S"""

    ttid: Tid
    oid: Oid
    compression: Compression
    checksum: Checksum
    data: bytes
    data_serial: Tid | None


@notification(EXTENSION | 0x49)
class NotifyPrepared(Message):
    """These transactions are prepared. In VERIFYING: keep their votes at StartOperation. Later: replicate
    cells without waiting for their end. M → S"""

    ttid_list: list[Tid]


class AnswerRollbackPrepared(Answer):
    """The outcome is durable."""

    ttid: Tid


@request(EXTENSION | 0x4A)
class AskRollbackPrepared(Request[AnswerRollbackPrepared]):
    """Remember that a transaction is rolled back; AbortTransaction follows. ``time``: seconds since 1970.
    M ⇄ S"""

    xid: Xid
    ttid: Tid
    time: Finite


class AnswerJoinPrepared(Answer):
    """The transactions that the node takes part in from now on."""

    ttid_list: list[Tid]


@request(EXTENSION | 0x4B)
class AskJoinPrepared(Request[AnswerJoinPrepared]):
    """Take part in these prepared transactions, whose rows of the partition are durable here. S ⇄ M"""

    partition: Count
    ttid_list: list[Tid]


#: The mark of a whole transaction: (ttid, xid, since, text, all its partitions, oids that it stores, oids
#: that it checks)
SyncMark = PreparedMark


class AnswerJoinSync(Answer):
    """``tid``: the last transaction. Every later one will be asked to be locked. ``prepared_list``: what
    is prepared."""

    tid: Tid
    prepared_list: list[SyncMark]


@request(EXTENSION | 0x50)
class AskJoinSync(Request[AnswerJoinSync]):
    """Wait for this backup from now on. Master of a backup ⇄ M"""


class AnswerSyncLease(Answer):
    """The backup is in sync for the length of a lease."""


@request(EXTENSION | 0x51)
class AskSyncLease(Request[AnswerSyncLease]):
    """Promise to acknowledge nothing without this standby. Master of a backup ⇄ M"""


class AnswerLockBackup(Answer):
    """The transaction is locked durably in the backup."""

    ttid: Tid


@request(EXTENSION | 0x52)
class AskLockBackup(Request[AnswerLockBackup]):
    """Lock a transaction that is locked upstream. ``oid_list``: the objects that it stores.
    M ⇄ master of a backup"""

    ttid: Tid
    tid: Tid
    oid_list: list[Oid]


class AnswerPrepareBackup(Answer):
    """The transaction is prepared durably in the backup."""

    ttid: Tid


@request(EXTENSION | 0x53)
class AskPrepareBackup(Request[AnswerPrepareBackup]):
    """Keep a transaction that is prepared upstream. M ⇄ master of a backup"""

    mark: SyncMark


@notification(EXTENSION | 0x54)
class NotifySynced(Message):
    """All readable cells of the backup have everything up to ``tid``. Master of a backup → M, M → S in
    VERIFYING"""

    tid: Tid


@notification(EXTENSION | 0x55)
class NotifyAborted(Message):
    """S → S of a backup: a voted transaction ended. M → master of a backup: a prepared one was rolled
    back"""

    ttid: Tid


class AnswerVoted(Answer):
    """All these rows are durable."""

    ttid: Tid


@request(EXTENSION | 0x56)
class AskVoted(Request[AnswerVoted]):
    """Have the rows of a transaction in these partitions: those of the objects, and the metadata. Fetch
    what is lacking. ``source_dict``: partition → storage node of the upstream cluster. ``mark``: mark it
    as prepared, too. M ⇄ S"""

    ttid: Tid
    upstream_name: str
    source_dict: dict[Count, Address]
    oid_list: list[Oid]
    mark: SyncMark | None


class AnswerFetchVoted(Answer):
    """All rows were sent."""

    ttid: Tid


@request(EXTENSION | 0x57)
class AskFetchVoted(Request[AnswerFetchVoted]):
    """Send the rows of a voted transaction in these partitions, and from now on what is voted there. S of
    a backup ⇄ S"""

    ttid: Tid
    partition_list: list[Count]


@notification(EXTENSION | 0x58)
class AddVoted(Message):
    """The rows of a voted transaction in a partition follow, and replace earlier ones. ``metadata``: if
    the partition keeps it. S → S of a backup"""

    ttid: Tid
    partition: Count
    metadata: PreparedMetadata | None


@notification(EXTENSION | 0x59)
class AddVotedObject(Message):
    """An object of a voted transaction; the fields are those of AddObject. S → S of a backup"""

    ttid: Tid
    oid: Oid
    compression: Compression
    checksum: Checksum
    data: bytes
    data_serial: Tid | None


class AnswerStoreVoted(Answer):
    """The rows are durable."""

    ttid: Tid


@request(EXTENSION | 0x5A)
class AskStoreVoted(Request[AnswerStoreVoted]):
    """Make the rows of these partitions durable: all were sent. S ⇄ S of a backup"""

    ttid: Tid
    partition_list: list[Count]


#: (name, state: off, async, joining, sync or lost, since when: seconds since 1970, tid up to which it is
#: complete or nil, seconds since it was in sync or nil if it never was, why it is not in sync)
SyncRow = tuple[str, str, Finite, Tid | None, Finite | None, str]


class AnswerSync(Answer):
    """``backup_list``: the synchronous backups of this cluster. ``own``: this cluster as a synchronous
    backup."""

    backup_list: list[SyncRow]
    own: SyncRow | None


@request(EXTENSION | 0x5B)
class AskSync(Request[AnswerSync]):
    """The state of synchronous backups. ctl ⇄ A ⇄ M"""


@request(EXTENSION | 0x5C)
class SetSync(Request[Error]):
    """Wait for a synchronous backup, or not. ctl ⇄ A ⇄ M"""

    name: str
    on: bool


@notification(EXTENSION | 0x5D)
class NotifyLeft(Message):
    """The upstream cluster does not wait for this backup any more: end the subscriptions. Master of a
    backup → S"""


#: Property of a storage node's RequestIdentification: the last time of NotifyInSync; absent if there was
#: none since the cluster became a backup.
SYNC_UNTIL = "sync_until"


@notification(EXTENSION | 0x5E)
class NotifyInSync(Message):
    """This synchronous backup is, or was, in sync until this time. Master of a backup → S"""

    until: Finite


#: BLAKE3 of a content.
ContentChecksum = Annotated[bytes, Meta(min_length=32, max_length=32)]


class AnswerStoreBlob(Answer):
    """The piece is taken. After the last one: the content is durable."""

    ttid: Tid
    oid: Oid


@request(EXTENSION | 0x80)
class AskStoreBlob(Request[AnswerStoreBlob]):
    """A piece of the content of a blob. ``offset``: what was sent before, 0 begins anew. ``checksum``: of
    all of it, with the last piece. C ⇄ S"""

    ttid: Tid
    oid: Oid
    offset: Number
    data: bytes
    checksum: ContentChecksum | None


class AnswerBlob(Answer):
    """Fewer bytes than requested: the content ends with them."""

    data: bytes


@request(EXTENSION | 0x81)
class AskBlob(Request[AnswerBlob]):
    """A piece of a content. ``oid``: the object that has it, to name it in errors. C ⇄ S, S ⇄ S"""

    oid: Oid
    checksum: ContentChecksum
    offset: Number
    length: Count


@notification(EXTENSION | 0x82)
class NotifyBlobDamaged(Message):
    """What the node sent of this content does not match the checksum. C → S, S → S"""

    oid: Oid
    checksum: ContentChecksum


@notification(EXTENSION | 0x83)
class VerifyContents(Message):
    """Compare the contents of a partition with their checksums. M → S"""

    partition: Count


class AnswerContentState(Answer):
    """``count``: contents that rows refer to; ``size``: their bytes. ``free``: bytes of the disk.
    ``lost``: contents whose files are missing or damaged. ``left``: partitions that are still to be
    verified."""

    count: Number
    size: Number
    free: Number
    lost: Count
    left: Count


@request(EXTENSION | 0x84)
class AskContentState(Request[AnswerContentState]):
    """How many contents the node keeps, and how they are. M ⇄ S"""


ContentRow = tuple[Nid, Number, Number, Number, Count, Count]
"""Node id, then the fields of AnswerContentState."""


class AnswerContents(Answer):
    """Storage nodes that keep contents, and answer."""

    row_list: list[ContentRow]


@request(EXTENSION | 0x85)
class AskContents(Request[AnswerContents]):
    """How the contents of blobs are on all nodes. ctl ⇄ A ⇄ M"""


#: (node that lost it, object, transaction, checksum, bytes)
LostContentRow = tuple[Nid, Oid, Tid, ContentChecksum, Number]


class AnswerLostContents(Answer):
    """Revisions whose content is missing or damaged on a node."""

    row_list: list[LostContentRow]


@request(EXTENSION | 0x86)
class AskLostContents(Request[AnswerLostContents]):
    """At most ``length`` revisions of each node that lost their contents. ctl ⇄ A ⇄ M, M ⇄ S"""

    length: Count


#: Property of a storage node's RequestIdentification: the operations in its journal: (operation,
#: whether its success is noted).
OPERATIONS = "operations"


@notification(EXTENSION | 0x30)
class NotifyOperation(Message):
    """An operation in which the receiver has a part, as specification 27.5 encodes it. M → S"""

    id: Number
    operation: bytes


@notification(EXTENSION | 0x31)
class NotifyOperationState(Message):
    """``state``: RUNNING, ROLLING_BACK (undo what was begun) or SUCCEEDED (note that). ``complete``: all
    nodes are past so many steps. ``context_list``: what the steps have told so far: (step, node, what).
    M → S"""

    id: Number
    state: str
    complete: Count
    context_list: list[tuple[Count, Nid, bytes]]


@notification(EXTENSION | 0x32)
class NotifyOperationMark(Message):
    """How far the sender is with a step. ``mark``: as numbered in specification 27.9; ``done``: from 0 to
    1; ``text``: what it does, or why it failed; ``context``: for the other steps. S → M"""

    id: Number
    step: Count
    mark: Count
    done: Finite
    text: str
    context: bytes


@notification(EXTENSION | 0x33)
class NotifyOperationEnded(Message):
    """The operation is over on all nodes: delete it from the journal. M → S"""

    id: Number


#: (name, nodes that execute it, it waits until all nodes have done the steps before, it can be undone)
StepRow = tuple[str, list[Nid], bool, bool]


class AnswerBeginOperation(Answer):
    """``id``: nil if the steps were only asked for."""

    id: Number | None
    step_list: list[StepRow]


@request(EXTENSION | 0x34)
class AskBeginOperation(Request[AnswerBeginOperation]):
    """Begin an operation, or tell what its steps would be. ctl ⇄ A ⇄ M"""

    kind: str
    arguments: Extra
    dry_run: bool


#: (node id, step, mark: begun, done, failed or rolled back, from 0 to 1, what it does or why it failed)
ProgressRow = tuple[Nid, Count, str, Finite, str]
#: (id, kind, arguments, state, seconds since 1970 when it began, locks, why it failed, steps, progress)
OperationRow = tuple[
    Number, str, Extra, str, Finite, list[str], str, list[StepRow], list[ProgressRow]
]


class AnswerOperations(Answer):
    row_list: list[OperationRow]


@request(EXTENSION | 0x35)
class AskOperations(Request[AnswerOperations]):
    """One operation, or all: those in progress, and the last ones that ended. ctl ⇄ A ⇄ M"""

    id: Typed | None


@request(EXTENSION | 0x36)
class AbortOperation(Request[Error]):
    """Undo an operation that has not succeeded yet. ctl ⇄ A ⇄ M"""

    id: Typed


@request(EXTENSION | 0x37)
class ForgetOperation(Request[Error]):
    """Do not wait for a node to undo its part: it is lost, or was put in order by hand. ctl ⇄ A ⇄ M"""

    id: Typed
    nid: Typed


# -- ours: another number of partitions -----------------------------------------------------------


class AnswerCommitted(Answer):
    tid: Tid | None


@request(EXTENSION | 0x38)
class AskCommitted(Request[AnswerCommitted]):
    """The tid of a transaction, if it is in a partition: when it began, there was another number of
    partitions, so that its tid need not be in the partition of its ttid. C ⇄ S"""

    partition: Count
    ttid: Tid


# -- ours: conditions of storage nodes -------------------------------------------------------------


Condition = tuple[str, str, str, str]
"""What is wrong: its kind, ``problem`` or ``warning``, a sentence, and what to do."""


class AnswerConditions(Answer):
    condition_list: list[Condition]


@request(EXTENSION | 0xC0)
class AskConditions(Request[AnswerConditions]):
    """What makes requests fail on the node, or soon will. M ⇄ S"""


class AnswerNodeConditions(Answer):
    """Those of the storage nodes that answer."""

    row_list: list[tuple[Nid, Condition]]


@request(EXTENSION | 0xC1)
class AskNodeConditions(Request[AnswerNodeConditions]):
    """What makes requests fail on storage nodes, or soon will. ctl ⇄ A ⇄ M"""


# -- ours: room for a backup -----------------------------------------------------------------------


class AnswerRoom(Answer):
    """``needed``: bytes that the node is about to write, estimated. ``free``: bytes of the disk, nil if
    that is not known. ``disk``: the same text on all nodes that write to it."""

    needed: Number
    free: Number | None
    disk: str


@request(EXTENSION | 0xD0)
class AskRoom(Request[AnswerRoom]):
    """The room for a backup of these partitions up to ``tid`` in the folder ``path``. M ⇄ S"""

    path: str
    full: bool
    tid: Tid
    partition_list: list[Count]


# -- ours: transactions with one storage node ------------------------------------------------------


class AnswerVoteSingle(Answer):
    """``voted`` false: a store or check did not get its lock before. The client handles the answers to
    all of them, and votes again."""

    voted: bool


@request(EXTENSION | 0xD8)
class AskVoteSingle(Request[AnswerVoteSingle]):
    """Vote, with the metadata of a transaction in which no other storage node takes part. It may be sent
    before the stores and checks of these objects are answered. ``durable``: the answer waits for the
    disk; else only the lock does. C ⇄ S"""

    ttid: Tid
    user: bytes
    description: bytes
    extension: bytes
    stored_list: list[Oid]
    checked_list: list[Oid]
    durable: bool


# -- ours: data of conflicts ------------------------------------------------------------------------


@notification(EXTENSION | 0xD9)
class NotifyConflictData(Message):
    """The revision with which a store of an object conflicts. Precedes the answer to the store. S → C"""

    ttid: Tid
    oid: Oid
    serial: Tid
    compression: Compression
    checksum: Checksum
    data: bytes


# -- ours: disks of storage nodes ------------------------------------------------------------------

DiskRow = tuple[str, Number, Number]
"""What is on it, its free bytes, and all that can be used."""


class AnswerDisks(Answer):
    """``version``: of the program. ``size``: bytes of the database and of contents of blobs."""

    version: str
    size: Number
    disk_list: list[DiskRow]


@request(EXTENSION | 0xE0)
class AskDisks(Request[AnswerDisks]):
    """The disks of the node, and what it keeps there. M ⇄ S"""


NodeDisksRow = tuple[Nid, str, Number, list[DiskRow]]
"""Node id, then the fields of AnswerDisks."""


class AnswerNodeDisks(Answer):
    """Those of the storage nodes that answer."""

    row_list: list[NodeDisksRow]


@request(EXTENSION | 0xE1)
class AskNodeDisks(Request[AnswerNodeDisks]):
    """The disks of all storage nodes. ctl ⇄ A ⇄ M"""


# -- ours: how much is committed -------------------------------------------------------------------


class AnswerCommitCount(Answer):
    """``since``: when this master began to count, seconds since 1970. ``count``: transactions that it has
    finished since then; two answers with the same ``since`` give a rate."""

    since: Finite
    count: Number


@request(EXTENSION | 0xE6)
class AskCommitCount(Request[AnswerCommitCount]):
    """How many transactions the master has finished. A ⇄ M"""


# -- ours: traces ------------------------------------------------------------------------------------


@notification(EXTENSION | 0xE9)
class NotifyTrace(Message):
    """A transaction is part of a trace: the span below which the node's spans belong, as in
    ``traceparent`` of W3C Trace Context. Only to a node that announced ``trace``. C → M, S"""

    ttid: Tid
    trace_id: Annotated[bytes, Meta(min_length=16, max_length=16)]
    span_id: Annotated[bytes, Meta(min_length=8, max_length=8)]
    flags: Annotated[int, Meta(ge=0, le=255)]


# -- ours: caches of clients -------------------------------------------------------------------------


class AnswerCache(Answer):
    """``name``: of the client's process, as operators know it. ``capacity``, ``size``: bytes.
    ``entries``: revisions that it has. ``hits``: loads that it answered, ``misses``: loads that storage
    nodes answered, since the storage was opened."""

    name: str
    capacity: Number
    size: Number
    entries: Number
    hits: Number
    misses: Number


@request(EXTENSION | 0xF0)
class AskCache(Request[AnswerCache]):
    """The figures of the client's cache. M ⇄ C"""


CacheRow = tuple[Nid, str, Number, Number, Number, Number, Number]
"""Node id, then the fields of AnswerCache."""


class AnswerClientCaches(Answer):
    """Those of the clients that have answered."""

    row_list: list[CacheRow]


@request(EXTENSION | 0xF1)
class AskClientCaches(Request[AnswerClientCaches]):
    """The caches of all clients. ctl ⇄ A ⇄ M"""


# -- ours: copies of transactions ---------------------------------------------------------------------


@notification(EXTENSION | 0xE2)
class NotifyChain(Message):
    """Each of these transactions of the client may be committed only after the one before it. C → M"""

    ttid_list: list[Tid]


@notification(EXTENSION | 0xE3)
class NotifyPresetEnded(Message):
    """The transaction with this imposed tid has ended: the tid may be imposed again. M → S"""

    ttid: Tid


# -- ours: the log of transactions ------------------------------------------------------------------

LoggedTransaction = tuple[Tid, bytes, bytes, bytes, bool]
"""Tid, user, description, extension, packed, as in AnswerTransactionInformation."""


class AnswerTransactionLog(Answer):
    """Newest first. ``more``: there are older ones that were asked for, or may be."""

    row_list: list[LoggedTransaction]
    more: bool


@request(EXTENSION | 0xEA)
class AskTransactionLog(Request[AnswerTransactionLog]):
    """The metadata of the last ``length`` transactions of these partitions, for undoLog. ``partitions``:
    the number of all. C ⇄ S"""

    length: Count
    partitions: Count
    partition_list: list[Count]
